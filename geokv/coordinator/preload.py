"""What the forkserver imports once for all processes of a run."""

import gc

import geokv.coordinator.client
import geokv.coordinator.drill.client
import geokv.coordinator.drill.cold_engine
import geokv.coordinator.fleet
import geokv.site.process  # noqa: F401

# A collection writes to every object it looks at. In a fork that copies the whole heap, page
# by page: 100 MB and two seconds in the VM for each site.
gc.collect()
gc.freeze()
