"""Each site's disk is a file system of its own, so that it alone can be full."""

from __future__ import annotations

from pathlib import Path

from geokv.lab.mounts import mount_tmpfs, mounted_below, unmount
from geokv.site.settings import SiteSettings

_SPARE_BYTES = 16 << 20


def disk_bytes(settings: SiteSettings) -> int:
    """Size of its file system: more than the tier ever asks for."""
    assert settings.disk is not None, "it has a disk"
    return 2 * settings.disk.size_bytes // settings.byte_scale + _SPARE_BYTES


def prepare_disk(settings: SiteSettings) -> None:
    """Give a site that is about to start its disk, unless it finds the old one.

    Raises:
        LabError: it cannot be mounted.
    """
    if settings.disk is None or settings.disk.folder in mounted_below(settings.disk.folder):
        return
    Path(settings.disk.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    mount_tmpfs(settings.disk.folder, disk_bytes(settings))


def release_disks(base: Path) -> None:
    """Take away every disk below ``base``; what was on them is gone."""
    for path in reversed(mounted_below(str(base))):
        unmount(path)
