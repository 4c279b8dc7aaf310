"""umount(2)."""

from __future__ import annotations

import ctypes
import errno
import os

_libc = ctypes.CDLL(None, use_errno=True)
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8


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
