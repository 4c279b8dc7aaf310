"""Bringing one chunk here: from this site's tiers, from whoever fetches it already, from others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from geokv.cache.history import History
from geokv.cache.keys import ChunkRef
from geokv.cache.layout import ChunkLayout
from geokv.cache.locality import Entry, Slot, TierStack
from geokv.cache.mixed import MixedReader
from geokv.cache.plan import LOCAL, Plan
from geokv.cache.record import ChunkHeader, checksums, make_header, verify
from geokv.cache.substrate import Transfer, Transport
from geokv.clock import now_ns
from geokv.errors import CacheError, FetchError
from geokv.units import NS_PER_S


@dataclass
class Arrival:
    """A chunk that is here, pinned, and how it came."""

    entry: Entry
    source: str
    merged: bool = False
    disk: bool = False
    transfer: Transfer | None = None
    wire_bytes: int = 0


# After these another site would do no better: there is no room, or no time, or the
# caller may not have it.
_FINAL = frozenset({"full", "timeout", "cancelled", "foreign", "purged", "fenced"})


class Bringer:
    """Brings chunks of plans, one by one, into a tier.

    Args:
        exact: KV that lost something on its way is a miss (``lossy``).

    Attributes:
        on_damaged: told a site and what of it came with bytes that are not what its checksums
            say.
    """

    def __init__(
        self,
        tier: TierStack,
        layout: ChunkLayout,
        transport: Transport,
        history: History,
        exact: bool = True,
    ) -> None:
        self.on_damaged: Callable[[str, ChunkRef], None] = lambda site, ref: None
        self._tier = tier
        self._layout = layout
        self._transport = transport
        self._history = history
        self._exact = exact
        self._mixed = MixedReader(layout, transport, exact)

    def _local(self, ref: ChunkRef) -> Entry | None:
        entry = self._tier.get(ref.key) if ref.key in self._tier else None
        if entry is None:
            return None
        cause = verify(entry.header, ref, self._layout, exact=self._exact)
        if cause is not None:
            entry.release()
            raise FetchError(cause, f"chunk {ref.key.hex()} of this site is another ({cause})")
        return entry

    def _pinned(self, ref: ChunkRef, disk: bool) -> Arrival | None:
        """What of it is here, at once.

        Raises:
            FetchError: what is here under its key is another chunk.
        """
        entry = self._local(ref)
        return Arrival(entry, LOCAL, disk=disk) if entry is not None else None

    async def _arrive(
        self,
        plan: Plan,
        index: int,
        deadline_ns: int,
        sent: dict[int, Transfer],
    ) -> Arrival:
        ref, sources = plan.refs[index], plan.sources[index]
        promoted = plan.promoted.get(index)
        merged = disk = False
        cause = promoted.result() if promoted is not None and promoted.done() else ""
        while True:
            entry = self._local(ref)
            if entry is not None:
                return Arrival(entry, LOCAL, merged, disk or promoted is not None)
            below = self._tier.on_disk(ref.key)
            pending = self._tier.arriving(ref.key, ref.tenant, ref)
            if pending is None:
                break
            disk = disk or below
            merged = not disk
            try:
                async with asyncio.timeout_at(deadline_ns / NS_PER_S):
                    cause = await asyncio.shield(pending)
            except TimeoutError:
                raise FetchError("timeout", "it did not arrive in time") from None
            if cause and below:
                break
        failure = FetchError(cause or "absent", f"chunk {ref.key.hex()} is gone from this site")
        for site in sources:
            if site == LOCAL:
                continue
            if not self._transport.up(site):
                failure = FetchError("unreachable", f"{site} is left alone for now")
                continue
            try:
                if self._transport.layout(site) is not self._layout:
                    return await self._bring_other(plan, index, site, deadline_ns, sent)
                return await self._bring(plan, index, site, deadline_ns, sent)
            except FetchError as error:
                failure = error
                if error.cause in _FINAL or now_ns() >= deadline_ns:
                    break
        raise failure

    async def _bring(
        self, plan: Plan, index: int, site: str, deadline_ns: int, sent: dict[int, Transfer]
    ) -> Arrival:
        ref = plan.refs[index]
        try:
            slot = self._tier.reserve(ref.key, ref.tenant)
        except CacheError as error:
            raise FetchError("full", error.message, error.hint) from None
        try:
            transfer = self._transport.submit(site, ref, slot.view, deadline_ns, exact=self._exact)
        except CacheError as error:
            self._tier.abort(slot, "unreachable")
            raise FetchError("unreachable", error.message, error.hint) from None
        sent[index] = transfer
        try:
            header = await transfer.done
        except FetchError as error:
            self._tier.abort(slot, error.cause)
            self._note_lost(plan, index, site, error.cause)
            if error.cause == "corrupt":
                self.on_damaged(site, ref)
            raise
        except BaseException:
            # Only when nothing can write to the slot any more may it be another's.
            self._transport.stop(transfer)
            self._tier.abort(slot, "cancelled")
            self._note_lost(plan, index, site, "cancelled")
            raise
        try:
            self._tier.commit(slot, header)
        except FetchError as error:
            self._note_lost(plan, index, site, error.cause)
            raise
        self._note_fetch(ref, plan, index, site, header, slot, [transfer])
        return self._arrived(ref, site, transfer, transfer.wire_bytes)

    async def _bring_other(
        self, plan: Plan, index: int, site: str, deadline_ns: int, sent: dict[int, Transfer]
    ) -> Arrival:
        """As ``_bring``, from a site with another layout; what comes with the chunk is kept."""
        start, stop = plan.spans.get((index, site), (index, index + 1))
        refs = plan.refs[start:stop]
        slots: dict[int, Slot] = {}
        try:
            # The one that is wanted comes first: there may be no room for the others.
            for part in (index - start, *range(len(refs))):
                key, owner = refs[part].key, refs[part].tenant
                if key not in self._tier and self._tier.pending(key) is None:
                    slots[part] = self._tier.reserve(key, owner)
        except CacheError as error:
            if not slots:
                raise FetchError("full", error.message, error.hint) from None
        places = {part: slot.view for part, slot in slots.items()}

        def on_sent(transfer: Transfer) -> None:
            sent[index] = transfer

        try:
            came = await self._mixed.read(site, refs, places, deadline_ns, on_sent)
        except BaseException as error:
            cause = error.cause if isinstance(error, FetchError) else "cancelled"
            for slot in slots.values():
                self._tier.abort(slot, cause)
            self._note_lost(plan, index, site, cause)
            raise
        for ref, header in came.asked:
            # Of the sender's layout: nothing here has these bytes.
            self._note_fetch(ref, plan, index, site, header, None, [])
        for part, slot in slots.items():
            self._keep_converted(refs[part], slot, site, came.lossy)
        return self._arrived(plan.refs[index], site, came.last, came.wire_bytes)

    def _keep_converted(self, ref: ChunkRef, slot: Slot, site: str, lossy: bool) -> None:
        sums = checksums(self._layout, slot.view)
        life = self._transport.incarnation
        header = make_header(ref, self._layout, sums, slot.generation, life)
        try:
            self._tier.commit(slot, replace(header, lossy=lossy))
        except FetchError as error:
            self._history.note("convert", ref.key, source=site, cause=error.cause)
            return
        self._history.note(
            "convert",
            ref.key,
            source=site,
            lossy=lossy,
            tenant=ref.tenant,
            place=slot.index,
            generation=slot.generation,
            incarnation=life,
            checksums=[digest.hex() for digest in sums],
        )

    def _note_lost(self, plan: Plan, index: int, site: str, cause: str) -> None:
        """A chunk of ``plan`` did not come from ``site``, or must not be kept."""
        key, request_id = plan.refs[index].key, plan.request_id
        self._history.note(
            "fetch", key, source=site, cause=cause, request_id=request_id, index=index
        )

    def _note_fetch(
        self,
        ref: ChunkRef,
        plan: Plan,
        index: int,
        site: str,
        header: ChunkHeader,
        slot: Slot | None,
        transfers: Sequence[Transfer],
    ) -> None:
        """``ref`` came for the chunk at ``index`` of the plan, in these transfers."""
        self._history.note(
            "fetch",
            ref.key,
            source=site,
            cause="",
            request_id=plan.request_id,
            index=index,
            place=-1 if slot is None else slot.index,
            generation=header.generation,
            incarnation=header.incarnation,
            checksums=[digest.hex() for digest in header.checksums],
            tenant=header.tenant,
            **_stamps(transfers),
        )

    def _arrived(self, ref: ChunkRef, site: str, transfer: Transfer, wire_bytes: int) -> Arrival:
        entry = self._tier.get(ref.key)
        if entry is None:
            raise FetchError("absent", f"chunk {ref.key.hex()} went as soon as it came")
        return Arrival(entry, site, transfer=transfer, wire_bytes=wire_bytes)


def _stamps(transfers: Sequence[Transfer]) -> dict[str, int]:
    """When the parts of a chunk were asked for, began, ended and were verified, and their bytes."""
    if not transfers:
        return {}
    return {
        "asked_ns": min(one.requested_ns for one in transfers),
        "first_byte_ns": min(one.first_byte_ns for one in transfers),
        "last_byte_ns": max(one.last_byte_ns for one in transfers),
        "verified_ns": max(one.verified_ns for one in transfers),
        "bytes": sum(one.wire_bytes for one in transfers),
        "parts": len(transfers),
    }
