"""The site's disk gives errors: nothing on it can be opened, for reading or for writing.

Over the folder of entries lies a file system in which files have the names of its folders, so
that every path below ends in ENOTDIR, whoever asks. What was there is there again when it goes.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from geokv.cache.locality.disk_index import LAYOUT_FOLDER
from geokv.clock import now_ns
from geokv.coordinator.faults.disks import folder_of
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.errors import FaultError
from geokv.lab.mounts import mount_tmpfs, unmount
from geokv.scenario.timeline import StoreOutage

_ROOM_BYTES = 1 << 20


class StoreOutageFault(Fault[StoreOutage]):
    """Seen from outside: a file cannot be opened or made in any folder of entries."""

    kind = "store-outage"
    alone = True

    async def inject(self) -> Evidence:
        entries = folder_of(self.stage, self.event.site) / LAYOUT_FOLDER
        if not entries.is_dir():
            raise FaultError(f"{entries} is not there")
        mount_tmpfs(str(entries), _ROOM_BYTES)
        for shard in range(256):
            (entries / f"{shard:02x}").touch()
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT):
            found = _opening(entries / "00" / "probe", flags)
            if found != "ENOTDIR":
                raise FaultError(f"opening a file in {entries} gives {found}")
        said = f"every file on the disk of site {self.event.site} is refused (ENOTDIR)"
        return Evidence(now_ns(), said, {"error": "ENOTDIR"})

    async def heal(self) -> Evidence:
        entries = folder_of(self.stage, self.event.site) / LAYOUT_FOLDER
        unmount(str(entries))
        found = _opening(entries / "00" / "probe", os.O_RDONLY)
        if found != "ENOENT":
            raise FaultError(f"opening a file in {entries} gives {found}")
        return Evidence(now_ns(), f"files on the disk of site {self.event.site} open again", {})


def _opening(path: Path, flags: int) -> str:
    """Name of the error, ``no error`` when there is none."""
    try:
        os.close(os.open(path, flags | os.O_CLOEXEC, 0o600))
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "unknown")
    return "no error"
