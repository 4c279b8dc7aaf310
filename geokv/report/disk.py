"""Writing into a run folder, with errors that say what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from geokv.errors import ConfigError, GeokvError, RunError
from geokv.units import show_size

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {
    errno.EACCES,
    errno.EEXIST,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Turn a failed write of ``path`` into a clear error and leave no half file.

    Raises:
        RunError: the disk is full, or failed.
        ConfigError: the folder cannot be written to.
    """
    try:
        yield
    except OSError as error:
        if path.is_file() or path.is_symlink():
            path.unlink()
        raise explained(error, path) from None


def explained(error: OSError, path: Path) -> GeokvError:
    """The same failure in the user's terms."""
    if error.errno in _FULL:
        return RunError(
            f"{path}: the disk is full",
            "free some space, or choose another place with --out DIR; what was written is kept",
        )
    if error.errno in _DENIED:
        return ConfigError(
            f"{path}: cannot be written ({os.strerror(error.errno or 0)})",
            "choose a folder you may write to with --out DIR",
        )
    return RunError(f"{path}: cannot be written ({error.strerror or error})")


def require_space(folder: Path, needed_bytes: int) -> None:
    """Refuse a folder whose file system has less than ``needed_bytes`` free.

    Raises:
        RunError: too little space.
    """
    state = os.statvfs(folder)
    free_bytes = state.f_bavail * state.f_frsize
    if free_bytes < needed_bytes:
        raise RunError(
            f"{folder}: the disk is full ({show_size(free_bytes)} free, "
            f"a run needs {show_size(needed_bytes)})",
            "free some space, or choose another place with --out DIR",
        )


def require_place(path: Path, option: str) -> None:
    """Refuse a file that a user named with ``option`` and that cannot be written, before the work
    that would be in it is done.

    Raises:
        ConfigError: it is a folder, or its own folder is not there or not to be written to.
    """
    if path.is_dir():
        raise ConfigError(f"{option}: {path} is a folder", f"name a file, as {path / 'FILE'}")
    if not path.parent.is_dir():
        hint = f"make it first (mkdir -p {path.parent}), or name another"
        raise ConfigError(f"{option}: there is no folder {path.parent}", hint)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"{option}: {path} cannot be written", "name a file where you may write")


def write_text(path: Path, text: str) -> None:
    """Write a whole UTF-8 file, errors as of ``saving``."""
    with saving(path):
        path.write_text(text, encoding="utf-8")
