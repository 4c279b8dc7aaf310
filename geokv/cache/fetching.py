"""Bringing one prefix here, chunk by chunk, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from geokv.cache.history import History
from geokv.cache.keys import ChunkRef
from geokv.cache.layout import ChunkLayout
from geokv.cache.locality import Entry, Slot, TierStack
from geokv.cache.mixed import MixedReader
from geokv.cache.plan import LOCAL, Outcome, Plan
from geokv.cache.record import ChunkHeader, checksums, make_header, verify
from geokv.cache.substrate import Transfer, Transport
from geokv.clock import now_ns
from geokv.errors import CacheError, FetchError
from geokv.units import NS_PER_S

OnChunk = Callable[[int, Entry], Awaitable[None]]


@dataclass
class _Arrival:
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
_Step: TypeAlias = "_Arrival | asyncio.Task[_Arrival] | FetchError | None"


class Fetcher:
    """Runs plans against a tier and a transport.

    Args:
        keep: takes tasks that outlive their fetch (answers under way when the prefix
            had already ended); they fill the tier and end by their deadline.
        exact: KV that lost something on its way is a miss (``lossy``).
        audit: note the checksums of what is handed over, computed anew each time.
    """

    def __init__(
        self,
        tier: TierStack,
        layout: ChunkLayout,
        transport: Transport,
        history: History,
        keep: Callable[[asyncio.Task[_Arrival]], None],
        exact: bool = True,
        audit: bool = False,
    ) -> None:
        self._tier = tier
        self._layout = layout
        self._transport = transport
        self._history = history
        self._keep = keep
        self._exact = exact
        self._audit = audit
        self._mixed = MixedReader(layout, transport, exact)
        self.unseen: dict[bytes, None] = {}
        """Handed over as they lie here, whatever they are: what was planted on purpose."""
        self.on_rotten: Callable[[bytes], None] = lambda key: None
        """Told a key whose bytes in DRAM are no longer what its checksums say."""
        self.on_damaged: Callable[[str, ChunkRef], None] = lambda site, ref: None
        """Told a site and what of it came with bytes that are not what its checksums say."""
        self.on_unused: Callable[[bytes], None] = lambda key: None
        """Told a key that came from another site and is kept, though its prefix had ended."""
        self.gate: Callable[[ChunkRef], str] = lambda ref: ""
        """Why a chunk must not be used now, though it is here and whole."""

    async def run(self, plan: Plan, deadline_ns: int, on_chunk: OnChunk) -> Outcome:
        """Hand over the chunks of ``plan`` in prefix order, up to the first missing one.

        Cancelling closes the connections whose answers were under way.
        """
        outcome = Outcome(started_ns=now_ns())
        sent: dict[int, Transfer] = {}
        steps: list[_Step] = []
        try:
            # Pins on what is local come first: making room for the rest must not evict it.
            for i, (ref, sources) in enumerate(zip(plan.refs, plan.sources, strict=True)):
                local = sources[0] == LOCAL
                steps.append(self._pin(ref, i in plan.promoted) if local else None)
            for i in range(len(plan.refs)):
                if steps[i] is None:
                    work = self._arrive(plan, i, deadline_ns, sent)
                    steps[i] = asyncio.get_running_loop().create_task(work)
            for i in range(len(steps)):
                try:
                    arrival = await self._arrival(plan, i, steps, deadline_ns, sent)
                except FetchError as error:
                    self._missed(outcome, plan, i, error)
                    break
                with arrival.entry:
                    if arrival.transfer is None and self._rotten(arrival.entry):
                        self._missed(outcome, plan, i, _rot(plan.refs[i]))
                        break
                    arrival.entry.source = arrival.source or ("disk" if arrival.disk else "dram")
                    # Nothing may come between this look and the use.
                    cause = self.gate(plan.refs[i])
                    if cause:
                        self._missed(outcome, plan, i, _closed(cause))
                        break
                    self._used(plan, arrival.entry)
                    await on_chunk(i, arrival.entry)
                self._count(outcome, arrival)
        except BaseException:
            await self._give_up(plan, steps)
            raise
        await self._leave(plan, steps, sent, outcome.usable_chunks)
        return outcome

    def _missed(self, outcome: Outcome, plan: Plan, index: int, error: FetchError) -> None:
        """The prefix ends here."""
        outcome.misses[error.cause] += 1
        outcome.reason = error.message
        outcome.missed_ns = self._history.note(
            "miss",
            plan.refs[index].key,
            request_id=plan.request_id,
            cause=error.cause,
            reason=error.message,
        )

    def _rotten(self, entry: Entry) -> bool:
        """Have the bytes of a chunk changed since it became readable here? It goes then."""
        header = entry.header
        if header.key in self.unseen or checksums(self._layout, entry.view) == header.checksums:
            return False
        self.on_rotten(header.key)
        return True

    def _used(self, plan: Plan, entry: Entry) -> None:
        """For the audit: what the bytes are that are handed over now."""
        if self._audit:
            sums = checksums(self._layout, entry.view)
            note_use(self._history, plan.request_id, entry.source, entry.header, sums)

    def _count(self, outcome: Outcome, arrival: _Arrival) -> None:
        outcome.usable_chunks += 1
        if arrival.source == LOCAL:
            outcome.merged_chunks += arrival.merged
            outcome.local_chunks += not arrival.merged
            outcome.disk_chunks += arrival.disk
            return
        outcome.remote_chunks += 1
        outcome.wire_bytes += arrival.wire_bytes
        outcome.sites[arrival.source] += 1
        if arrival.transfer is not None:
            first = arrival.transfer.first_byte_ns
            outcome.first_byte_ns = min(outcome.first_byte_ns or first, first)
            outcome.last_byte_ns = max(outcome.last_byte_ns, arrival.transfer.last_byte_ns)
            outcome.verified_ns = max(outcome.verified_ns, arrival.transfer.verified_ns)

    # -- one chunk -------------------------------------------------------------

    def _local(self, ref: ChunkRef) -> Entry | None:
        entry = self._tier.get(ref.key) if ref.key in self._tier else None
        if entry is None:
            return None
        cause = verify(entry.header, ref, self._layout, exact=self._exact)
        if cause is not None:
            entry.release()
            raise FetchError(cause, f"chunk {ref.key.hex()} of this site is another ({cause})")
        return entry

    def _pin(self, ref: ChunkRef, disk: bool) -> _Step:
        try:
            entry = self._local(ref)
        except FetchError as error:
            return error
        return _Arrival(entry, LOCAL, disk=disk) if entry is not None else None

    async def _arrive(
        self,
        plan: Plan,
        index: int,
        deadline_ns: int,
        sent: dict[int, Transfer],
    ) -> _Arrival:
        ref, sources = plan.refs[index], plan.sources[index]
        promoted = plan.promoted.get(index)
        merged = disk = False
        cause = promoted.result() if promoted is not None and promoted.done() else ""
        while True:
            entry = self._local(ref)
            if entry is not None:
                return _Arrival(entry, LOCAL, merged, disk or promoted is not None)
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
    ) -> _Arrival:
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
    ) -> _Arrival:
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

    def _arrived(self, ref: ChunkRef, site: str, transfer: Transfer, wire_bytes: int) -> _Arrival:
        entry = self._tier.get(ref.key)
        if entry is None:
            raise FetchError("absent", f"chunk {ref.key.hex()} went as soon as it came")
        return _Arrival(entry, site, transfer=transfer, wire_bytes=wire_bytes)

    async def _arrival(
        self, plan: Plan, i: int, steps: list[_Step], deadline_ns: int, sent: dict[int, Transfer]
    ) -> _Arrival:
        """The end of a step, when all before it have been handed over."""
        step = steps[i]
        if step is None:
            return await self._arrive(plan, i, deadline_ns, sent)
        try:
            return await _arrival(step)
        except FetchError as error:
            # A prefix on the disk may be longer than DRAM: what came before can go now,
            # and what comes after is let go and asked for again in its turn.
            if error.cause != "full" or not self._tier.on_disk(plan.refs[i].key):
                raise
            for later in range(i + 1, len(steps)):
                entry = _pinned(steps[later])
                if entry is not None:
                    entry.release()
                    steps[later] = None
            return await self._arrive(plan, i, deadline_ns, sent)

    # -- ending early ----------------------------------------------------------

    async def _leave(
        self, plan: Plan, steps: list[_Step], sent: dict[int, Transfer], used: int
    ) -> None:
        """The prefix has ended: what is not asked for yet never will be; answers under
        way are let in, because closing their connections would cost more."""
        ended = []
        for i, step in enumerate(steps):
            if isinstance(step, _Arrival):
                step.entry.release()
            elif isinstance(step, asyncio.Task):
                step.add_done_callback(_release)
                if i >= used:
                    self._tell_unused(plan.refs[i], step)
                if not step.done() and (i not in sent or sent[i].state == "queued"):
                    step.cancel()
                    ended.append(step)
                elif not step.done():
                    self._keep(step)
        await asyncio.gather(*ended, return_exceptions=True)

    async def _give_up(self, plan: Plan, steps: list[_Step]) -> None:
        tasks = [step for step in steps if isinstance(step, asyncio.Task)]
        for ref, step in zip(plan.refs, steps, strict=False):
            if isinstance(step, _Arrival):
                step.entry.release()
            elif isinstance(step, asyncio.Task):
                step.cancel()
                step.add_done_callback(_release)
                self._tell_unused(ref, step)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tell_unused(self, ref: ChunkRef, task: asyncio.Task[_Arrival]) -> None:
        """Once ``task`` has ended: what it brought here is here, whoever asked for it."""

        def ended(task: asyncio.Task[_Arrival]) -> None:
            came = not task.cancelled() and task.exception() is None
            if came and task.result().source != LOCAL:
                self.on_unused(ref.key)

        task.add_done_callback(ended)


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


def _closed(cause: str) -> FetchError:
    return FetchError(cause, f"no chunk may be used now ({cause})")


def _rot(ref: ChunkRef) -> FetchError:
    return FetchError("corrupt", f"chunk {ref.key.hex()} has changed in this site's memory")


def note_use(
    history: History, request_id: str, source: str, header: ChunkHeader, sums: Sequence[bytes]
) -> None:
    """A chunk was handed to the engine; ``sums`` are of the bytes that it got."""
    history.note(
        "use",
        header.key,
        request_id=request_id,
        tenant=header.tenant,
        source=source,
        generation=header.generation,
        incarnation=header.incarnation,
        checksums=[digest.hex() for digest in sums],
    )


async def _arrival(step: _Arrival | asyncio.Task[_Arrival] | FetchError) -> _Arrival:
    if isinstance(step, asyncio.Task):
        return await step
    if isinstance(step, FetchError):
        raise step
    return step


def _pinned(step: _Step) -> Entry | None:
    """The entry that a step holds already."""
    if isinstance(step, asyncio.Task):
        done = step.done() and not step.cancelled() and step.exception() is None
        return step.result().entry if done else None
    return step.entry if isinstance(step, _Arrival) else None


def _release(task: asyncio.Task[_Arrival]) -> None:
    """Unpin what nobody will take, and look at the exception of what failed."""
    if not task.cancelled() and task.exception() is None:
        task.result().entry.release()
