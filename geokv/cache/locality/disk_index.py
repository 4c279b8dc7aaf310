"""What a disk tier finds in its folder when it starts.

``FOLDER/v1/<first two hex digits>/<key>.kv``, and ``FOLDER/lock``, which one process
holds. Another file layout would lie in another ``v…`` and is left alone, as is every
file whose name is not ours.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from geokv.cache.layout import ChunkLayout
from geokv.cache.locality.disk_file import PARTIAL, SUFFIX, DiskRecord, inspect_file, remove_file
from geokv.errors import ConfigError, RecordError

LAYOUT_FOLDER = "v1"
_SHARD = re.compile(r"[0-9a-f]{2}")
_NAME = re.compile(rf"[0-9a-f]{{32}}({re.escape(SUFFIX)}|{re.escape(PARTIAL)})")


@dataclass
class Foreign:
    """A whole entry of another model or chunk layout: never served, first to go."""

    path: Path
    wire_bytes: int
    sequence: int


@dataclass
class Found:
    """What a folder holds.

    Attributes:
        records: whole entries of this layout, the earliest written first.
        foreign: whole entries of others, the earliest written first.
        removed: files that were removed, by cause: ``corrupt``, ``partial``.
        stuck: files that should have been removed and could not be.
    """

    records: list[DiskRecord] = field(default_factory=list)
    foreign: list[Foreign] = field(default_factory=list)
    removed: Counter[str] = field(default_factory=Counter)
    stuck: list[Path] = field(default_factory=list)


def chunk_path(folder: Path, key: bytes) -> Path:
    """Where the chunk of ``key`` lies."""
    name = key.hex()
    return folder / LAYOUT_FOLDER / name[:2] / (name + SUFFIX)


def lock_folder(folder: Path) -> int:
    """Make the folder and take it for this process; the descriptor holds the lock.

    Raises:
        ConfigError: another process uses it.
        OSError: it cannot be made or written.
    """
    (folder / LAYOUT_FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(
            f"disk.folder: {folder} is in use by another process",
            "give every site a folder of its own",
        ) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def scan_folder(folder: Path, layout: ChunkLayout) -> Found:
    """Read the front of every file; remove what is no whole entry.

    Raises:
        OSError: the folder or a file cannot be read.
    """
    found = Found()
    for shard in sorted(os.listdir(folder / LAYOUT_FOLDER)):
        if not _SHARD.fullmatch(shard):
            continue
        for name in sorted(os.listdir(folder / LAYOUT_FOLDER / shard)):
            if _NAME.fullmatch(name) and name.startswith(shard):
                _examine(folder / LAYOUT_FOLDER / shard / name, layout, found)
    found.records.sort(key=lambda record: record.sequence)
    found.foreign.sort(key=lambda foreign: foreign.sequence)
    return found


def _examine(path: Path, layout: ChunkLayout, found: Found) -> None:
    if path.suffix == PARTIAL:
        _remove(path, "partial", found)
        return
    try:
        record = inspect_file(path)
    except RecordError:
        _remove(path, "corrupt", found)
        return
    header = record.header
    if header.key.hex() != path.stem:
        _remove(path, "corrupt", found)
    elif header.model != layout.model_digest or header.layout != layout.fingerprint:
        found.foreign.append(Foreign(path, header.wire_bytes, record.sequence))
    elif len(header.checksums) != layout.groups or record.payload_bytes != layout.real_bytes:
        _remove(path, "corrupt", found)
    else:
        found.records.append(record)


def _remove(path: Path, cause: str, found: Found) -> None:
    found.removed[cause] += 1
    if remove_file(path) is not None:
        found.stuck.append(path)
