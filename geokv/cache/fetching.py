"""Bringing one prefix here, chunk by chunk, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from geokv.cache.bringing import Arrival, Bringer
from geokv.cache.history import History
from geokv.cache.keys import ChunkRef
from geokv.cache.layout import ChunkLayout
from geokv.cache.locality import Entry, TierStack
from geokv.cache.plan import LOCAL, Outcome, Plan
from geokv.cache.record import ChunkHeader, checksums
from geokv.cache.substrate import Transfer, Transport
from geokv.clock import now_ns
from geokv.errors import FetchError

OnChunk = Callable[[int, Entry], Awaitable[None]]


_Step: TypeAlias = "Arrival | asyncio.Task[Arrival] | FetchError | None"


class Fetcher(Bringer):
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
        keep: Callable[[asyncio.Task[Arrival]], None],
        exact: bool = True,
        audit: bool = False,
    ) -> None:
        super().__init__(tier, layout, transport, history, exact)
        self._keep = keep
        self._audit = audit
        self.unseen: dict[bytes, None] = {}
        """Handed over as they lie here, whatever they are: what was planted on purpose."""
        self.on_rotten: Callable[[bytes], None] = lambda key: None
        """Told a key whose bytes in DRAM are no longer what its checksums say."""
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
                        self._missed(outcome, plan, i, rot(plan.refs[i]))
                        break
                    arrival.entry.source = arrival.source or ("disk" if arrival.disk else "dram")
                    # Nothing may come between this look and the use.
                    cause = self.gate(plan.refs[i])
                    if cause:
                        self._missed(outcome, plan, i, closed(cause))
                        break
                    self._used(plan, arrival.entry)
                    await on_chunk(i, arrival.entry)
                self._count(outcome, arrival)
        except BaseException:
            await self._give_up(plan, steps)
            raise
        await self._leave(plan, steps, sent, outcome.usable_chunks)
        return outcome

    def _pin(self, ref: ChunkRef, disk: bool) -> _Step:
        try:
            return self._pinned(ref, disk)
        except FetchError as error:
            return error

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

    def _count(self, outcome: Outcome, arrival: Arrival) -> None:
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

    async def _arrival(
        self, plan: Plan, i: int, steps: list[_Step], deadline_ns: int, sent: dict[int, Transfer]
    ) -> Arrival:
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
                entry = _held(steps[later])
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
            if isinstance(step, Arrival):
                step.entry.release()
            elif isinstance(step, asyncio.Task):
                step.add_done_callback(release)
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
            if isinstance(step, Arrival):
                step.entry.release()
            elif isinstance(step, asyncio.Task):
                step.cancel()
                step.add_done_callback(release)
                self._tell_unused(ref, step)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tell_unused(self, ref: ChunkRef, task: asyncio.Task[Arrival]) -> None:
        """Once ``task`` has ended: what it brought here is here, whoever asked for it."""

        def ended(task: asyncio.Task[Arrival]) -> None:
            came = not task.cancelled() and task.exception() is None
            if came and task.result().source != LOCAL:
                self.on_unused(ref.key)

        task.add_done_callback(ended)


def closed(cause: str) -> FetchError:
    """Nothing may be used now."""
    return FetchError(cause, f"no chunk may be used now ({cause})")


def rot(ref: ChunkRef) -> FetchError:
    """Its bytes are not what they were."""
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


async def _arrival(step: Arrival | asyncio.Task[Arrival] | FetchError) -> Arrival:
    if isinstance(step, asyncio.Task):
        return await step
    if isinstance(step, FetchError):
        raise step
    return step


def _held(step: _Step) -> Entry | None:
    """The entry that a step holds already."""
    if isinstance(step, asyncio.Task):
        done = step.done() and not step.cancelled() and step.exception() is None
        return step.result().entry if done else None
    return step.entry if isinstance(step, Arrival) else None


def release(task: asyncio.Task[Arrival]) -> None:
    """Unpin what nobody will take, and look at the exception of what failed."""
    if not task.cancelled() and task.exception() is None:
        task.result().entry.release()
