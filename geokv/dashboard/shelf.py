"""The runs of a folder: which there are, and what becomes of each."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from geokv.dashboard.head import Head, read_head
from geokv.dashboard.reading import Folder, stamp_of
from geokv.dashboard.told import Told

DEEPEST = 3
"""Folders below the root that a run may lie in: ``results/<scenario>/<run>``, and one more."""
MOST_RUNS = 500
"""Newest ones that are listed."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_STAMP = re.compile(r"^(\d{8}-\d{6})-[0-9a-f]{8}")


class Shelf:
    """Looks through the folder when asked; what cannot have changed is not read again.

    Args:
        root: the folder; it need not be there yet.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.left_off = 0
        """Runs beyond ``MOST_RUNS`` when last looked."""
        self._folders: dict[str, Folder] = {}
        self._fixed: dict[str, tuple[tuple[Any, ...], Head]] = {}
        self._told: dict[str, Told] = {}
        # Pages are served from threads.
        self._lock = threading.RLock()

    def look(self) -> dict[str, Head]:
        """Every run by id, newest first."""
        with self._lock:
            return self._look()

    def _look(self) -> dict[str, Head]:
        found = sorted(_run_folders(self.root), key=lambda one: one[0], reverse=True)
        self.left_off = max(0, len(found) - MOST_RUNS)
        self._folders = {identity: folder for _, identity, folder in found[:MOST_RUNS]}
        heads = {}
        for started, identity, folder in found[:MOST_RUNS]:
            head = self._head(identity, folder, started)
            if head is not None:
                heads[identity] = head
        for kept in (self._fixed, self._told):
            for identity in kept.keys() - heads.keys():
                kept.pop(identity, None)
        return heads

    def folder(self, identity: str) -> Folder | None:
        """Where a run lies, by the listing alone: an id never becomes a path."""
        with self._lock:
            if identity not in self._folders:
                self._look()
            return self._folders.get(identity)

    def head(self, identity: str) -> Head | None:
        """One run as it is now."""
        with self._lock:
            folder = self.folder(identity)
            return None if folder is None else self._head(identity, folder, _started(folder))

    def _head(self, identity: str, folder: Folder, started: str) -> Head | None:
        files = ("scenario.yaml", "manifest.json", "summary.json")
        stamps = tuple(stamp_of(folder, name) for name in files)
        if None in stamps[:2]:
            return None
        kept = self._fixed.get(identity)
        if kept is None or kept[0] != stamps:
            self._fixed[identity] = kept = (stamps, read_head(identity, folder, started))
        told = self._told.setdefault(identity, Told(folder))
        return told.fill(kept[1])


def identity_of(root: Path, run_dir: Path) -> str:
    """The id of a run below ``root``; names of folders have no ``~``."""
    return "~".join(run_dir.relative_to(root).parts)


def _run_folders(root: Path) -> Iterator[tuple[str, str, Folder]]:
    """``(started, id, folder)`` of every folder that holds a run."""
    left = [Folder(root)]
    while left:
        folder = left.pop()
        try:
            with folder.opened() as here, os.scandir(here) as entries:
                names = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        for name in names:
            inside = folder.inner(name)
            if _NAME.fullmatch(name) is None:
                continue
            if stamp_of(inside, "manifest.json") and stamp_of(inside, "scenario.yaml"):
                yield _started(inside), "~".join(inside.names), inside
            elif len(inside.names) < DEEPEST:
                left.append(inside)


def _started(folder: Folder) -> str:
    """By the folder's name, which survives copying; else when its manifest was written."""
    match = _STAMP.match(folder.names[-1])
    if match:
        try:
            moment = datetime.strptime(match[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
            return moment.isoformat()
        except ValueError:
            pass
    stamp = stamp_of(folder, "manifest.json")
    seconds = stamp[0] // 10**9 if stamp else 0
    return datetime.fromtimestamp(seconds, UTC).isoformat()
