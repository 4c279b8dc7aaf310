"""A site's disk as the kernel sees it, and what can become of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from geokv.coordinator.drill.stage import Stage
from geokv.errors import FaultError

PAGE_BYTES = 4096


def folder_of(stage: Stage, site: str) -> Path:
    """Where the site's disk tier lies. Raises FaultError: it has none."""
    disk = stage.settings(site).disk
    if disk is None:
        raise FaultError(f"site {site} has no disk")
    return Path(disk.folder)


def refusal(folder: Path) -> str:
    """Name of the error with which the disk refuses a page more; empty when it takes it."""
    probe = folder / "probe"
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, bytes(PAGE_BYTES))
        finally:
            os.close(descriptor)
            os.unlink(probe)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "unknown")
    return ""


def used_bytes(folder: Path) -> int:
    """What its file system holds."""
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize
