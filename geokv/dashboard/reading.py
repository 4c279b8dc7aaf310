"""Reading a folder that others write to, and that may hold anything.

Every path is opened one name at a time, and a symbolic link is never followed: nothing outside
the folder can be reached, whatever lies in it.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from geokv.live.follow import is_held

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe somebody left there must not hang its reader.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BEGINS_S = 5.0
JSON_LIMIT_BYTES = 32 * 2**20
"""Of a file that is read whole; the largest shipped summary has 1 MB."""


def open_below(root: Path, names: Sequence[str]) -> BinaryIO:
    """Open the regular file ``root/names[0]/names[1]/…`` for reading.

    Args:
        root: is trusted, and may itself be reached over symbolic links.

    Raises:
        OSError: a name is no plain name or begins with a dot, something there is a symbolic
            link, it is not there, or it is not a regular file.
    """
    if not names or not all(map(_plain, names)):
        raise FileNotFoundError(f"{'/'.join(names)!r} is not a path of plain names")
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            there = os.open(name, _FOLDER, dir_fd=here)
            os.close(here)
            here = there
        file = os.open(names[-1], _FILE, dir_fd=here)
    finally:
        os.close(here)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise FileNotFoundError(f"{names[-1]} is not a regular file")
    except OSError:
        os.close(file)
        raise
    return os.fdopen(file, "rb")


def _plain(name: str) -> bool:
    return bool(name) and not name.startswith(".") and "/" not in name and "\0" not in name


def read_json(root: Path, *names: str) -> dict[str, Any] | None:
    """A JSON object below ``root``; None where there is none that can be read."""
    try:
        with open_below(root, names) as stream:
            data = stream.read(JSON_LIMIT_BYTES + 1)
        found = json.loads(data) if len(data) <= JSON_LIMIT_BYTES else None
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def stamp_of(root: Path, *names: str) -> tuple[int, int] | None:
    """``(mtime_ns, bytes)`` of a file below ``root``; None where there is none."""
    try:
        found = os.stat(root.joinpath(*names), follow_symlinks=False)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None


def is_locked(root: Path, *names: str) -> bool:
    """Whether somebody holds a file below ``root``, as a run does its events while it goes on.

    An empty file that is new counts as held: its writer makes it and then locks it, and looking
    in between would be in its way.
    """
    try:
        with open_below(root, names) as stream:
            found = os.fstat(stream.fileno())
            if found.st_size == 0 and time.time() - found.st_mtime < _BEGINS_S:
                return True
            return is_held(stream)
    except OSError:
        return False
