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
from geokv.dashboard.reading import stamp_of
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
        self._folders: dict[str, Path] = {}
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
        self._folders = {identity: path for _, identity, path in found[:MOST_RUNS]}
        heads = {}
        for started, identity, path in found[:MOST_RUNS]:
            head = self._head(identity, path, started)
            if head is not None:
                heads[identity] = head
        for kept in (self._fixed, self._told):
            for identity in kept.keys() - heads.keys():
                kept.pop(identity, None)
        return heads

    def folder(self, identity: str) -> Path | None:
        """Where a run lies, by the listing alone: an id never becomes a path."""
        with self._lock:
            if identity not in self._folders:
                self._look()
            return self._folders.get(identity)

    def head(self, identity: str) -> Head | None:
        """One run as it is now."""
        with self._lock:
            path = self.folder(identity)
            return None if path is None else self._head(identity, path, _started(path))

    def _head(self, identity: str, path: Path, started: str) -> Head | None:
        files = ("scenario.yaml", "manifest.json", "summary.json")
        stamps = tuple(stamp_of(path, name) for name in files)
        kept = self._fixed.get(identity)
        if kept is None or kept[0] != stamps:
            head = read_head(identity, path, started)
            if head is None:
                return None
            self._fixed[identity] = kept = (stamps, head)
        told = self._told.setdefault(identity, Told(path))
        return told.fill(kept[1])


def identity_of(root: Path, run_dir: Path) -> str:
    """The id of a run below ``root``; names of folders have no ``~``."""
    return "~".join(run_dir.relative_to(root).parts)


def _run_folders(root: Path) -> Iterator[tuple[str, str, Path]]:
    """``(started, id, path)`` of every folder that holds a run."""
    left: list[tuple[Path, tuple[str, ...]]] = [(root, ())]
    while left:
        folder, names = left.pop()
        try:
            with os.scandir(folder) as entries:
                inside = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        for name in inside:
            path, path_names = folder / name, (*names, name)
            if _NAME.fullmatch(name) is None:
                continue
            if stamp_of(path, "manifest.json") and stamp_of(path, "scenario.yaml"):
                yield _started(path), "~".join(path_names), path
            elif len(path_names) < DEEPEST:
                left.append((path, path_names))


def _started(path: Path) -> str:
    """By the folder's name, which survives copying; else when its manifest was written."""
    match = _STAMP.match(path.name)
    if match:
        try:
            moment = datetime.strptime(match[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
            return moment.isoformat()
        except ValueError:
            pass
    stamp = stamp_of(path, "manifest.json")
    seconds = stamp[0] // 10**9 if stamp else 0
    return datetime.fromtimestamp(seconds, UTC).isoformat()
