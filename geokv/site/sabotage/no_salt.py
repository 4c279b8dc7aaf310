"""All tenants have the same salt: the same text has the same keys, whoever sends it.

Trips ``foreign`` where two tenants send the same text.
"""

from __future__ import annotations

from dataclasses import replace

from geokv.site.sabotage._swap import swap
from geokv.site.settings import Tenant
from geokv.site.worker import Worker


def plant(worker: Worker) -> None:
    """Patch how this worker names what tenants send."""
    root = worker._root

    def unsalted(tenant: Tenant, epoch: int) -> bytes:
        return root(replace(tenant, salt=b""), epoch)

    swap(worker, "_root", unsalted)
