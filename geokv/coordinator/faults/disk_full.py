"""The disk has no block left: its file system is made as small as what it holds.

One that holds nothing gets a page of ours first: for tmpfs a size of nothing is no limit.
"""

from __future__ import annotations

from geokv.clock import now_ns
from geokv.coordinator.drill.disks import disk_bytes
from geokv.coordinator.faults.disks import PAGE_BYTES, folder_of, refusal, used_bytes
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.errors import FaultError
from geokv.lab.mounts import resize_tmpfs
from geokv.scenario.timeline import DiskFull

_PAGE = "full"


class DiskFullFault(Fault[DiskFull]):
    """Seen from outside: another process's page is refused with ENOSPC, and taken later."""

    kind = "disk-full"
    alone = True

    async def inject(self) -> Evidence:
        folder = folder_of(self.stage, self.event.site)
        used = used_bytes(folder)
        if not used:
            (folder / _PAGE).write_bytes(bytes(PAGE_BYTES))
            used = used_bytes(folder)
        resize_tmpfs(str(folder), used)
        found = refusal(folder)
        if found != "ENOSPC":
            raise FaultError(f"{folder} answers a page with {found or 'no error'}")
        return Evidence(
            now_ns(), f"the disk of site {self.event.site} takes no page more", {"used": used}
        )

    async def heal(self) -> Evidence:
        folder = folder_of(self.stage, self.event.site)
        (folder / _PAGE).unlink(missing_ok=True)
        size = disk_bytes(self.stage.settings(self.event.site))
        resize_tmpfs(str(folder), size)
        found = refusal(folder)
        if found:
            raise FaultError(f"{folder} answers a page with {found}")
        return Evidence(now_ns(), f"the disk of site {self.event.site} takes pages", {"size": size})
