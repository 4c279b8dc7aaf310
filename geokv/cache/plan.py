"""What a lookup found and what a fetch brought."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from geokv.cache.keys import ChunkRef

LOCAL = ""


@dataclass(frozen=True)
class Plan:
    """The longest prefix of the asked chunks that somebody is believed to have.

    Args:
        refs: chunks of that prefix, in order.
        sources: per chunk the sites to ask, best first; ``(LOCAL,)`` is this site, its
            disk included.
        asked: how many chunks were asked for.
        lookup_ns: how long it took to know, the directory's round trip included.
        misses: why the prefix is not longer, by cause.
        spans: (index, site) -> range of ``refs`` that come as one chunk of that site
            (see ``mixed``).
        promoted: chunks that the lookup began to bring up from the disk, by index;
            how that ended.
        request_id: for whom it is, where that is known.
    """

    refs: tuple[ChunkRef, ...]
    sources: tuple[tuple[str, ...], ...]
    asked: int
    lookup_ns: int
    misses: Counter[str] = field(default_factory=Counter)
    spans: Mapping[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    promoted: Mapping[int, asyncio.Future[str]] = field(default_factory=dict)
    request_id: str = ""

    @property
    def local_chunks(self) -> int:
        """How many chunks of the prefix lie at this site, its disk included."""
        return sum(source[0] == LOCAL for source in self.sources)

    @property
    def remote_chunks(self) -> int:
        """How many must come from other sites."""
        return len(self.refs) - self.local_chunks


@dataclass
class Outcome:
    """What came of a plan.

    Attributes:
        usable_chunks: length of the prefix that was handed over.
        wire_bytes: payload bytes of the handed-over chunks that crossed a link.
        remote_chunks, merged_chunks, local_chunks: how those chunks were had: by own
            fetch, by another request's fetch, from this site's tiers.
        disk_chunks: those of ``local_chunks`` that came up from the disk.
        misses: why the prefix is not longer, by cause; empty if all of it came.
        reason: text of the first of them.
        last_byte_ns, verified_ns: of the last remote chunk in the prefix (clock).
        missed_ns: when it was known that the prefix ends early; 0 if all of it came, or no
            history is kept.
        sites: chunks by the site that sent them.
    """

    usable_chunks: int = 0
    wire_bytes: int = 0
    remote_chunks: int = 0
    merged_chunks: int = 0
    local_chunks: int = 0
    disk_chunks: int = 0
    misses: Counter[str] = field(default_factory=Counter)
    reason: str = ""
    started_ns: int = 0
    first_byte_ns: int = 0
    last_byte_ns: int = 0
    verified_ns: int = 0
    missed_ns: int = 0
    sites: Counter[str] = field(default_factory=Counter)
