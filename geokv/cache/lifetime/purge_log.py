"""What has been purged, in order: a log that a restart does not forget.

One line per purge, ``BLAKE2b-64 of the rest, in hex | JSON``. A line is on the medium
before anybody hears of it. What a power failure left of a last line is cut off when the
file is opened: nobody had heard of that purge.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from geokv.errors import CacheError


class Purged(msgspec.Struct, frozen=True, array_like=True):
    """One purge: everything of ``tenant`` that is older than ``seq`` is gone.

    Args:
        seq: grows from purge to purge, also over lives of the authority.
        purge_id: of whoever asked; asking twice with one id purges once.
    """

    seq: int
    tenant: str
    purge_id: str


class PurgeLog:
    """All purges a site knows of.

    Args:
        path: where they are kept; ``None`` keeps them in memory, for a site that gets
            them from the authority anew in each life.

    Raises:
        CacheError: the file cannot be read or written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._entries: dict[int, Purged] = {}
        self._epochs: dict[str, int] = {}
        self._ids: dict[str, Purged] = {}
        if path is not None:
            self._load(path)

    @property
    def head(self) -> int:
        """Number of the last purge, 0 before the first."""
        return next(reversed(self._entries), 0)

    def epoch(self, tenant: str) -> int:
        """What a chunk of ``tenant`` must carry to be used: the number of its last purge."""
        return self._epochs.get(tenant, 0)

    def known(self, purge_id: str) -> Purged | None:
        """The purge of this id, if there was one."""
        return self._ids.get(purge_id)

    def after(self, seq: int) -> list[Purged]:
        """All later than ``seq``, in order."""
        return [entry for entry in self._entries.values() if entry.seq > seq]

    def add(self, entries: Iterable[Purged]) -> list[Purged]:
        """Take those that are new; when this returns they are on the medium.

        Raises:
            CacheError: they could not be written; none of them counts.
        """
        new = [entry for entry in entries if entry.seq > self.head]
        if new and self._path is not None:
            self._write(self._path, new)
        for entry in new:
            self._take(entry)
        return new

    def _take(self, entry: Purged) -> None:
        self._entries[entry.seq] = entry
        self._epochs[entry.tenant] = entry.seq
        self._ids[entry.purge_id] = entry

    def _load(self, path: Path) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            raw = path.read_bytes() if path.exists() else b""
            whole = 0
            for line in raw.splitlines(keepends=True):
                entry = _parse(line)
                if entry is None:
                    break
                self._take(entry)
                whole += len(line)
            if whole < len(raw):
                with path.open("r+b") as stream:
                    stream.truncate(whole)
                    os.fsync(stream.fileno())
        except OSError as error:
            raise CacheError(
                f"{path}: the log of purges cannot be read ({error.strerror})",
                "a site that does not know what was purged must not serve",
            ) from None

    def _write(self, path: Path, entries: list[Purged]) -> None:
        lines = b"".join(_line(entry) for entry in entries)
        try:
            size = path.stat().st_size if path.exists() else 0
            with path.open("ab") as stream:
                try:
                    stream.write(lines)
                    stream.flush()
                    os.fsync(stream.fileno())
                except OSError:
                    # Half a line here would hide every later one.
                    os.ftruncate(stream.fileno(), size)
                    raise
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise CacheError(
                f"{path}: cannot be written ({error.strerror}), so nothing was purged",
                "free some space, then ask again",
            ) from None


def _line(entry: Purged) -> bytes:
    text = json.dumps(msgspec.to_builtins(entry), separators=(",", ":")).encode()
    return _digest(text) + b" " + text + b"\n"


def _parse(line: bytes) -> Purged | None:
    digest, space, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or not space or digest != _digest(text):
        return None
    try:
        return msgspec.json.decode(text, type=Purged)
    except msgspec.DecodeError:
        return None


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode()
