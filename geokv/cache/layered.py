"""Bringing a prefix here layer group by layer group: all chunks' first group, then all
chunks' second, so that the first layers can be computed while the last are on the wire.

What is handed over early is verified, by the checksum of its group. It is no cached
chunk yet: a chunk is readable for others only when all its groups have come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from geokv.cache.bringing import Arrival
from geokv.cache.fetching import Fetcher, closed, note_use, release, rot
from geokv.cache.filler import group_filler
from geokv.cache.keys import ChunkRef
from geokv.cache.locality import Slot
from geokv.cache.plan import LOCAL, Outcome, Plan
from geokv.cache.record import ChunkHeader, checksum
from geokv.cache.substrate import Transfer
from geokv.clock import now_ns
from geokv.errors import CacheError, FetchError

OnPiece = Callable[[int, int, memoryview], Awaitable[None]]
"""Awaited with (chunk, group, its real KV) in group-major order."""
OnGroup = Callable[[int, int], Awaitable[None]]
"""Awaited with (group, chunks): all chunks before ``chunks`` have been handed over up to
and including this group, and no later one will be."""


@dataclass
class _Coming:
    """One chunk that comes in groups; ``entry`` instead if it is here or comes whole."""

    ref: ChunkRef
    site: str = ""
    slot: Slot | None = None
    transfers: list[Transfer] = field(default_factory=list)
    headers: list[ChunkHeader] = field(default_factory=list)
    whole: asyncio.Task[Arrival] | None = None
    arrival: Arrival | None = None
    error: FetchError | None = None


class LayeredFetcher(Fetcher):
    """A ``Fetcher`` that can also go by layer groups."""

    async def run_layered(
        self, plan: Plan, deadline_ns: int, on_piece: OnPiece, on_group: OnGroup
    ) -> Outcome:
        """Hand over every group of the chunks of ``plan``, in group-major order.

        The prefix ends at the first chunk of which a group does not come; what was
        handed over of it and of later chunks is of no use then. A chunk that comes
        whole (from this site, another request's fetch, a site with another layout) is
        handed over in groups all the same. A group that fails is not asked for
        elsewhere. Cancelling closes the connections whose answers were under way.
        """
        outcome = Outcome(started_ns=now_ns())
        chunks: list[_Coming] = []
        count = len(plan.refs)
        sums: list[list[bytes]] = [[] for _ in plan.refs]
        try:
            for i in range(count):
                chunks.append(self._begin(plan, i, deadline_ns))
            for group in range(self._layout.groups):
                for one in chunks:
                    self._ask(one, group, deadline_ns)
            for group in range(self._layout.groups):
                for i in range(count):
                    try:
                        view = await self._piece(chunks[i], group)
                    except FetchError as error:
                        count = i
                        self._missed(outcome, plan, i, error)
                        if error.cause == "corrupt" and chunks[i].site:
                            self.on_damaged(chunks[i].site, plan.refs[i])
                        self._drop(plan, i, chunks[i:], error.cause)
                        break
                    cause = self.gate(plan.refs[i])
                    if cause:
                        count = i
                        self._missed(outcome, plan, i, closed(cause))
                        self._drop(plan, i, chunks[i:], cause)
                        break
                    await on_piece(i, group, view)
                    if self._audit:
                        sums[i].append(checksum(view, group_filler(self._layout)[group]))
                await on_group(group, count)
                if not count:
                    break
            for i, one in enumerate(chunks[:count]):
                self._keep_whole(plan, i, one)
        except BaseException:
            self._drop(plan, 0, chunks, "cancelled")
            raise
        for one, handed_over in zip(chunks[:count], sums, strict=False):
            if one.arrival is not None:
                self._count(outcome, one.arrival)
                if self._audit:
                    source = one.arrival.source or ("disk" if one.arrival.disk else "dram")
                    header = one.arrival.entry.header
                    note_use(self._history, plan.request_id, source, header, handed_over)
                one.arrival.entry.release()
        return outcome

    def _begin(self, plan: Plan, index: int, deadline_ns: int) -> _Coming:
        """Pin it, reserve for it, or set out to have it whole."""
        ref, sources = plan.refs[index], plan.sources[index]
        one = _Coming(ref)
        try:
            entry = self._local(ref)
            if entry is not None and self._rotten(entry):
                entry.release()
                raise rot(ref)
            if entry is not None:
                one.arrival = Arrival(entry, LOCAL)
                return one
            site = next((site for site in sources if site != LOCAL and self._direct(site)), "")
            if not site or sources[0] == LOCAL or self._tier.arriving(ref.key, ref.tenant, ref):
                work = self._arrive(plan, index, deadline_ns, {})
                one.whole = asyncio.get_running_loop().create_task(work)
                return one
            one.slot, one.site = self._tier.reserve(ref.key, ref.tenant), site
        except FetchError as error:
            one.error = error
        except CacheError as error:
            one.error = FetchError("full", error.message, error.hint)
        return one

    def _direct(self, site: str) -> bool:
        return self._transport.up(site) and self._transport.layout(site) is self._layout

    def _ask(self, one: _Coming, group: int, deadline_ns: int) -> None:
        if one.slot is None or one.error is not None:
            return
        into = one.slot.view[self._layout.group_slices[group]]
        try:
            transfer = self._transport.submit(
                one.site, one.ref, into, deadline_ns, group=group, exact=self._exact
            )
        except CacheError as error:
            one.error = FetchError("unreachable", error.message, error.hint)
        else:
            one.transfers.append(transfer)

    async def _piece(self, one: _Coming, group: int) -> memoryview:
        if one.error is not None:
            raise one.error
        if one.whole is not None and one.arrival is None:
            one.arrival = await asyncio.shield(one.whole)
        place = self._layout.group_slices[group]
        if one.arrival is not None:
            return one.arrival.entry.view[place]
        if one.slot is None:
            raise FetchError("absent", f"chunk {one.ref.key.hex()} was not asked for")
        header = await asyncio.shield(one.transfers[group].done)
        one.headers.append(header)
        if not header.lossy and header.checksums != one.headers[0].checksums:
            raise FetchError("stale", f"{one.site} changed a chunk between two of its groups")
        return one.slot.view[place].toreadonly()

    def _keep_whole(self, plan: Plan, index: int, one: _Coming) -> None:
        """All groups of a chunk are here: make it readable."""
        if one.slot is None:
            return
        # After a lossy codec each answer knows the new checksum of its own group only.
        sums = tuple(header.checksums[group] for group, header in enumerate(one.headers))
        header = one.headers[0].with_checksums(sums, any(h.lossy for h in one.headers))
        slot, one.slot = one.slot, None
        try:
            self._tier.commit(slot, header)
        except FetchError as error:
            # It has been used, as it might have been a moment before; it is not kept.
            self._note_lost(plan, index, one.site, error.cause)
            return
        self._note_fetch(one.ref, plan, index, one.site, header, slot, one.transfers)
        last = max(one.transfers, key=lambda transfer: transfer.last_byte_ns)
        wire_bytes = sum(transfer.wire_bytes for transfer in one.transfers)
        one.arrival = self._arrived(one.ref, one.site, last, wire_bytes)
        last.first_byte_ns = min(transfer.first_byte_ns for transfer in one.transfers)

    def _drop(self, plan: Plan, first: int, chunks: list[_Coming], cause: str) -> None:
        """Give up what has not ended; when this returns nothing writes to its slots.

        Args:
            first: index in the plan of the first of ``chunks``.
        """
        for index, one in enumerate(chunks, start=first):
            for transfer in one.transfers:
                if not transfer.done.done():
                    self._transport.stop(transfer)
            if one.slot is not None:
                slot, one.slot = one.slot, None
                self._tier.abort(slot, cause)
                self._note_lost(plan, index, one.site, cause)
            if one.whole is not None:
                self._tell_unused(one.ref, one.whole)
            if one.arrival is not None:
                one.arrival.entry.release()
            elif one.whole is not None:
                one.whole.cancel()
                one.whole.add_done_callback(release)
