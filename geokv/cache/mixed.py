"""Reading from sites whose chunks lie otherwise, and keeping what comes as our own.

A site with smaller chunks is asked for all that make up one of ours. A site with
larger ones is asked for the whole; its directory entry is the key of the last part, so
``spread`` makes it a source of every part that the request has the tokens of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from geokv.cache.convert import Converter, parts_of, whole_of
from geokv.cache.keys import ChunkRef
from geokv.cache.layout import ChunkLayout
from geokv.cache.record import ChunkHeader
from geokv.cache.substrate import Transfer, Transport
from geokv.errors import ConfigError, FetchError, RecordError

Spans = dict[tuple[int, str], tuple[int, int]]
_MOST_KEPT = 8


def spread(
    refs: Sequence[ChunkRef],
    located: dict[bytes, tuple[str, ...]],
    layout_of: Callable[[str], ChunkLayout],
    mine: ChunkLayout,
) -> Spans:
    """Sources of what is part of a larger chunk elsewhere.

    Args:
        refs: consecutive chunks of one prompt.
        located: sites by key, as the directory said; parts are added, and a site whose
            chunk begins before ``refs`` is taken out, because it cannot be named.

    Returns:
        (index in ``refs``, site) -> the half-open range of ``refs`` that come together.
    """
    spans: Spans = {}
    for index, ref in enumerate(refs):
        for site in located.get(ref.key, ()):
            parts = layout_of(site).chunk_tokens // mine.chunk_tokens
            if parts <= 1 or (index, site) in spans:
                continue
            start = index + 1 - parts
            if start < 0:
                located[ref.key] = tuple(one for one in located[ref.key] if one != site)
                continue
            for part in range(start, index + 1):
                spans[part, site] = (start, index + 1)
                key = refs[part].key
                if site not in located.get(key, ()):
                    located[key] = (*located.get(key, ()), site)
    return spans


@dataclass(frozen=True)
class Converted:
    """What came and was converted.

    Attributes:
        asked: the sender's chunks, with the headers they came with.
        lossy: some number is another than it was.
        wire_bytes: that crossed the link.
        last: the transfer that ended last.
    """

    asked: tuple[tuple[ChunkRef, ChunkHeader], ...]
    lossy: bool
    wire_bytes: int
    last: Transfer


class MixedReader:
    """Fetches through memory of its own, and converts from there.

    Args:
        exact: refuse what could lose something, before a byte of it is asked for.
    """

    def __init__(self, mine: ChunkLayout, transport: Transport, exact: bool) -> None:
        self._mine = mine
        self._transport = transport
        self._exact = exact
        self._converters: dict[ChunkLayout, Converter] = {}
        self._free: dict[int, list[memoryview]] = {}

    async def read(
        self,
        site: str,
        refs: Sequence[ChunkRef],
        places: Mapping[int, memoryview],
        deadline_ns: int,
        on_sent: Callable[[Transfer], None],
    ) -> Converted:
        """Fill ``places`` with KV of ``site``.

        Args:
            refs: consecutive chunks of ours that come together.
            places: index in ``refs`` -> memory for our payload of it.

        Raises:
            FetchError: ``lossy``, ``mismatch``, ``corrupt``, or as a transfer of one
                of the chunks. Nothing in ``places`` can be relied on then.
        """
        theirs = self._transport.layout(site)
        converter = self._converter(theirs, site)
        asked = [whole_of(refs)] if len(refs) > 1 else parts_of(refs[0], theirs)
        memory = [self._take(theirs.real_bytes) for _ in asked]
        transfers = [
            self._transport.submit(site, ref, into, deadline_ns, exact=self._exact)
            for ref, into in zip(asked, memory, strict=True)
        ]
        on_sent(transfers[0])
        # All of them end before the memory can be anybody else's.
        ends = await asyncio.gather(*(one.done for one in transfers), return_exceptions=True)
        headers = []
        for end in ends:
            if isinstance(end, BaseException):
                raise end
            headers.append(end)
        same = self._convert(converter, memory, places)
        self._give_back(memory)
        return Converted(
            tuple(zip(asked, headers, strict=True)),
            not same or any(header.lossy for header in headers),
            theirs.wire_bytes * len(asked),
            max(transfers, key=lambda one: one.last_byte_ns),
        )

    def _convert(
        self,
        converter: Converter,
        memory: Sequence[memoryview],
        places: Mapping[int, memoryview],
    ) -> bool:
        mine, theirs = self._mine.chunk_tokens, converter.theirs.chunk_tokens
        same = True
        try:
            for index, place in places.items():
                for number, source in enumerate(memory):
                    at = index * mine if len(memory) == 1 else 0
                    to = number * theirs if len(memory) > 1 else 0
                    same &= converter.convert(source, at, place, to, min(mine, theirs))
        except RecordError as error:
            raise FetchError("corrupt", error.message) from None
        return same

    def _converter(self, theirs: ChunkLayout, site: str) -> Converter:
        converter = self._converters.get(theirs)
        if converter is None:
            try:
                converter = self._converters[theirs] = Converter(self._mine, theirs)
            except ConfigError as error:
                raise FetchError("mismatch", error.message) from None
        if self._exact and not converter.exact:
            raise FetchError(
                "lossy",
                f"{theirs.dtype} of {site} cannot be {self._mine.dtype} here without loss",
                "allow loss (cache.exact: false), or give both sites the same dtype",
            )
        return converter

    def _take(self, size: int) -> memoryview:
        free = self._free.setdefault(size, [])
        return free.pop() if free else memoryview(bytearray(size))

    def _give_back(self, memory: Sequence[memoryview]) -> None:
        for one in memory:
            free = self._free[len(one)]
            if len(free) < _MOST_KEPT:
                free.append(one)
