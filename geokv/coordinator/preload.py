"""What the forkserver imports once for all processes of a run.

Also what libraries put off until it is needed: whoever asks first would wait for it, 0.1 ms of
nothing but clock readings in virtual time.
"""

import gc
import linecache

import anyio._backends._asyncio  # noqa: F401, with the first answer that is streamed
import httpcore  # noqa: F401, with the first client

import geokv.coordinator.client
import geokv.coordinator.drill.client
import geokv.coordinator.drill.cold_engine
import geokv.coordinator.fleet
import geokv.site.api
import geokv.site.control
import geokv.site.drill_doors
import geokv.site.process

# FastAPI looks into the source of a handler when it is called first.
for module in (geokv.site.api, geokv.site.control, geokv.site.drill_doors):
    linecache.getlines(str(module.__file__))

# A collection writes to every object it looks at. In a fork that copies the whole heap, page
# by page: 100 MB and two seconds in the VM for each site.
gc.collect()
gc.freeze()
