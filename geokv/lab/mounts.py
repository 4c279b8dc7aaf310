"""mount(2) and umount(2)."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from geokv.errors import LabError

_libc = ctypes.CDLL(None, use_errno=True)
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8
_MS_NOSUID = 2
_MS_NODEV = 4
_MS_REMOUNT = 32
_PAGE_BYTES = 4096


def unmount(path: str) -> bool:
    """Detach what is mounted at ``path``; False when nothing is.

    Raises:
        OSError: it is mounted and cannot be detached.
    """
    if _libc.umount2(os.fsencode(path), _MNT_DETACH | _UMOUNT_NOFOLLOW) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOENT):
        return False
    raise OSError(code, os.strerror(code), path)


def mount_tmpfs(path: str, size_bytes: int) -> None:
    """An empty file system in memory over the folder ``path``.

    Raises:
        LabError: this user may not, or there is no such folder.
    """
    _tmpfs(path, size_bytes, 0)


def resize_tmpfs(path: str, size_bytes: int) -> None:
    """Another size for one that is mounted; what it holds must fit.

    Raises:
        LabError: it does not fit, or none is mounted there.
    """
    _tmpfs(path, size_bytes, _MS_REMOUNT)


def mounted_below(path: str) -> list[str]:
    """What is mounted at ``path`` or deeper, in the order of mounting."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        # Blanks and the like are octal in there.
        place = os.fsdecode(line.split()[4].encode().decode("unicode_escape").encode("latin-1"))
        if place == path or place.startswith(path.rstrip("/") + "/"):
            found.append(place)
    return found


def _tmpfs(path: str, size_bytes: int, flags: int) -> None:
    # A size of 0 would be no limit at all.
    size = max(size_bytes, _PAGE_BYTES)
    done = _libc.mount(
        b"tmpfs",
        os.fsencode(path),
        b"tmpfs",
        ctypes.c_ulong(flags | _MS_NOSUID | _MS_NODEV),
        f"size={size},mode=700".encode(),
    )
    if done != 0:
        code = ctypes.get_errno()
        raise LabError(
            f"a file system of {size} bytes cannot be mounted at {path} ({os.strerror(code)})",
            "run as root, or in the VM with --clock virtual",
        )
