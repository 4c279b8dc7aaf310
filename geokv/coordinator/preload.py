"""What the forkserver imports once for all processes of a run."""

import geokv.coordinator.client
import geokv.site.process  # noqa: F401
