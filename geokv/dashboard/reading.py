"""Reading a folder that others write to, and that may hold anything.

Every path is opened one name at a time from the root of all runs, and a symbolic link is never
followed: nothing outside the root can be reached, whatever lies in it and whatever is put in the
place of a folder after it was listed.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from geokv.live.follow import is_held

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe somebody left there must not hang its reader.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPENDED = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BEGINS_S = 5.0
JSON_LIMIT_BYTES = 32 * 2**20
"""Of a file that is read whole; the largest shipped summary has 1 MB."""


@dataclass(frozen=True)
class Folder:
    """A folder below a root, as the names that lead to it.

    Attributes:
        root: is trusted, and may itself be reached over symbolic links.
    """

    root: Path
    names: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """What it is called; not to be opened, for a name of it may be a link by then."""
        return self.root.joinpath(*self.names)

    def inner(self, *names: str) -> Folder:
        """One below it."""
        return Folder(self.root, (*self.names, *names))

    @contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor of it.

        Raises:
            OSError: a name is no plain name or begins with a dot, is a symbolic link or no folder,
                or is not there.
        """
        if not all(map(_plain, self.names)):
            raise FileNotFoundError(f"{'/'.join(self.names)!r} is not a path of plain names")
        here = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in self.names:
                there = os.open(name, _FOLDER, dir_fd=here)
                os.close(here)
                here = there
            yield here
        finally:
            os.close(here)


def open_below(folder: Folder, names: Sequence[str]) -> BinaryIO:
    """Open the regular file ``names[0]/names[1]/…`` of a folder for reading.

    Raises:
        OSError: as ``Folder.opened``, or it is not a regular file.
    """
    return os.fdopen(_regular(folder, names, _FILE), "rb")


def open_to_append(folder: Folder, names: Sequence[str]) -> BinaryIO:
    """The same for writing at its end, unbuffered: one write is one append."""
    return os.fdopen(_regular(folder, names, _APPENDED), "ab", buffering=0)


def _regular(folder: Folder, names: Sequence[str], flags: int) -> int:
    if not names or not _plain(names[-1]):
        raise FileNotFoundError(f"{'/'.join(names)!r} is not a path of plain names")
    with folder.inner(*names[:-1]).opened() as here:
        file = os.open(names[-1], flags, dir_fd=here)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise FileNotFoundError(f"{names[-1]} is not a regular file")
    except OSError:
        os.close(file)
        raise
    return file


def _plain(name: str) -> bool:
    return bool(name) and not name.startswith(".") and "/" not in name and "\0" not in name


def read_json(folder: Folder, *names: str) -> dict[str, Any] | None:
    """A JSON object below a folder; None where there is none that can be read."""
    try:
        with open_below(folder, names) as stream:
            data = stream.read(JSON_LIMIT_BYTES + 1)
        found = json.loads(data) if len(data) <= JSON_LIMIT_BYTES else None
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def stamp_of(folder: Folder, *names: str) -> tuple[int, int] | None:
    """``(mtime_ns, bytes)`` of a file below a folder; None where there is none."""
    try:
        with folder.inner(*names[:-1]).opened() as here:
            found = os.stat(names[-1], dir_fd=here, follow_symlinks=False)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None


def is_locked(folder: Folder, *names: str) -> bool:
    """Whether somebody holds a file below a folder, as a run does its events while it goes on.

    An empty file that is new counts as held: its writer makes it and then locks it, and looking
    in between would be in its way.
    """
    try:
        with open_below(folder, names) as stream:
            found = os.fstat(stream.fileno())
            if found.st_size == 0 and time.time() - found.st_mtime < _BEGINS_S:
                return True
            return is_held(stream)
    except OSError:
        return False
