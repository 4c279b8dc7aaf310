"""Chunks over any agent: a site's transport whose payload another engine carries.

::

    asker                                    owner
      | -- call chunk.open (key) ------------> |  pins the chunk, under a lease
      | <- header, lease, descriptors -------- |
      | == READ into the reserved slot ======> |  the engine's own way
      |    verify                              |
      | -- notice (lease) -------------------> |  unpins

Calls, names and keys are our TCP transport's, so that who may ask is the same whatever
carries the bytes. A one-sided engine discloses memory by the segment: whoever has a
site's metadata could read all of its tier without asking. Between sites that is no
more than they are trusted with (they believe each other about tenants anyway).

Real KV is verified as always. Filler moves, because it stands for bytes that would,
but is not looked at: all transfers share one place for it.

Longer than most: half of it passes calls on to the transport that carries words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from geokv.cache import record
from geokv.cache.filler import group_filler
from geokv.cache.keys import ChunkRef
from geokv.cache.layout import ChunkLayout
from geokv.cache.record import ChunkHeader
from geokv.cache.substrate.agent import Agent
from geokv.cache.substrate.lending import ASK, OPEN, Lender, Opened, Wanted
from geokv.cache.substrate.segments import Descriptor, DescriptorList, Segment
from geokv.cache.substrate.staging import Registry
from geokv.cache.substrate.tcp import TcpTransport
from geokv.cache.substrate.tcp.wire import known_cause
from geokv.cache.substrate.transport import (
    FETCH,
    ChunkSink,
    ChunkSource,
    Handler,
    Transfer,
)
from geokv.clock import now_ns
from geokv.errors import CacheError, FetchError, GeokvError, RecordError
from geokv.units import NS_PER_S

MakeAgent = Callable[[TcpTransport, str], Awaitable[Agent]]


class AgentTransport:
    """Implements ``substrate.transport.Transport``: GETs go through an agent, all else
    through ``control``.

    Args:
        control: calls, authentication, pushes; its data connections stay idle.
        make_agent: called with ``control`` and the host it listens on, once it does.
        in_flight: transfers under way at once with each site.
    """

    def __init__(
        self, control: TcpTransport, make_agent: MakeAgent, layout: ChunkLayout, in_flight: int = 8
    ) -> None:
        self._control = control
        self._make_agent = make_agent
        self._layout = layout
        self._in_flight = in_flight
        self._agent: Agent | None = None
        self._lender: Lender | None = None
        self._memory = Registry()
        self._meeting: dict[str, asyncio.Lock] = {}
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._tasks: dict[Transfer, asyncio.Task[None]] = {}
        self._landing: dict[asyncio.Task[None], None] = {}
        self._filler = bytearray(max(1, max(fill for _, fill in layout.group_bytes)))

    # -- both sides ------------------------------------------------------------

    @property
    def incarnation(self) -> int:
        return self._control.incarnation

    async def serve(
        self,
        host: str,
        port: int,
        source: ChunkSource,
        handlers: Mapping[str, Handler],
        sink: ChunkSink | None = None,
    ) -> int:
        ours: dict[str, Handler] = {OPEN: self._open, ASK: self._ask}
        bound = await self._control.serve(host, port, source, {**handlers, **ours}, sink)
        agent = await self._make_agent(self._control, host)
        self._memory.agent = self._agent = agent
        self._lender = Lender(agent, self._layout, source, self._memory.find)
        agent.on_notice = self._lender.noticed
        return bound

    async def _open(self, caller: Any, body: bytes) -> bytes:
        if self._lender is None:
            raise CacheError("this site's engine is starting")
        return await self._lender.open(caller.site, body)

    async def _ask(self, caller: Any, body: bytes) -> bytes:
        if self._agent is None:
            raise CacheError("this site's engine is starting")
        # The asker tells of itself too: an engine may want to know whom it serves.
        if body:
            self._agent.load_remote(body)
        return self._agent.metadata()

    def add_peer(self, site: str, host: str, port: int) -> None:
        self._control.add_peer(site, host, port)

    async def connect(self, site: str, deadline_ns: int) -> None:
        await self._control.connect(site, deadline_ns)

    async def reconnect(self, site: str, deadline_ns: int) -> None:
        await self._control.reconnect(site, deadline_ns)

    async def warm(self, site: str, n_bytes: int, deadline_ns: int) -> None:
        await self._control.warm(site, n_bytes, deadline_ns)

    async def call(self, site: str, method: str, body: bytes, deadline_ns: int) -> bytes:
        return await self._control.call(site, method, body, deadline_ns)

    async def push(
        self, sites: Sequence[str], ref: ChunkRef, deadline_ns: int
    ) -> dict[str, FetchError | None]:
        return await self._control.push(sites, ref, deadline_ns)

    def layout(self, site: str) -> ChunkLayout:
        return self._control.layout(site)

    def up(self, site: str) -> bool:
        return self._control.up(site)

    @property
    def on_peer(self) -> Callable[[str, bool, str], None]:
        """As of the transport behind."""
        return self._control.on_peer

    @on_peer.setter
    def on_peer(self, told: Callable[[str, bool, str], None]) -> None:
        self._control.on_peer = told

    def hold(self, site: str, cause: str) -> None:
        self._control.hold(site, cause)

    def release(self, site: str) -> None:
        self._control.release(site)

    def pair_key(self, site: str) -> bytes:
        return self._control.pair_key(site)

    def stats(self) -> dict[str, Any]:
        remotes = self._agent.remotes if self._agent is not None else {}
        return {
            **self._control.stats(),
            "agents": remotes,
            "lent": self._lender.open_leases if self._lender is not None else 0,
            "landing": len(self._landing),
            "forsaken": self._memory.forsaken,
        }

    async def close(self) -> None:
        for task in [*self._tasks.values(), *self._landing]:
            task.cancel()
        await asyncio.gather(*self._tasks.values(), *self._landing, return_exceptions=True)
        if self._lender is not None:
            self._lender.close()
        if self._agent is not None:
            await self._agent.close()
        await self._control.close()

    # -- reading ---------------------------------------------------------------

    def submit(
        self,
        site: str,
        ref: ChunkRef,
        into: memoryview,
        deadline_ns: int,
        *,
        priority: int = FETCH,
        group: int = -1,
        exact: bool = True,
    ) -> Transfer:
        done: asyncio.Future[ChunkHeader] = asyncio.get_running_loop().create_future()
        layout = self._control.layout(site)
        transfer = Transfer(ref, into, layout, deadline_ns, done, priority, group, exact, site)
        task = asyncio.get_running_loop().create_task(self._run(transfer))
        self._tasks[transfer] = task
        task.add_done_callback(lambda _: self._tasks.pop(transfer, None))
        done.add_done_callback(lambda _: self.stop(transfer))
        return transfer

    def stop(self, transfer: Transfer) -> None:
        """End ``transfer``. Its memory was never written to by the engine, so it is the
        caller's at once; what the engine still writes to is kept until it lets go."""
        task = self._tasks.get(transfer)
        if task is not None and not transfer.done.done():
            transfer.done.set_exception(FetchError("cancelled", "the transfer was given up"))
            transfer.done.exception()
        if task is not None:
            task.cancel()

    async def _run(self, transfer: Transfer) -> None:
        site = transfer.site
        turn = self._turns.setdefault(site, asyncio.Semaphore(self._in_flight))
        try:
            async with asyncio.timeout_at(transfer.deadline_ns / NS_PER_S), turn:
                transfer.state = "active"
                transfer.requested_ns = now_ns()
                header = await self._bring(transfer)
        except TimeoutError:
            self._fail(transfer, FetchError("timeout", f"{site} did not answer by the deadline"))
        except FetchError as error:
            self._fail(transfer, error)
        except GeokvError as error:
            self._fail(transfer, FetchError("corrupt", error.message, error.hint))
        else:
            transfer.state = "done"
            if not transfer.done.done():
                transfer.done.set_result(header)

    def _fail(self, transfer: Transfer, error: FetchError) -> None:
        transfer.state = "error"
        if not transfer.done.done():
            transfer.done.set_exception(error)
            transfer.done.exception()

    async def _bring(self, transfer: Transfer) -> ChunkHeader:
        site, ref, agent = transfer.site, transfer.ref, self._agent
        if agent is None:
            raise CacheError("this site's engine is not started", "call serve first")
        if transfer.layout != self._layout:
            raise FetchError("mismatch", f"{site} has another layout; only tcp converts")
        await self._meet(agent, site, (), transfer.deadline_ns)
        asked_ns = now_ns()
        want = Wanted(ref.key, ref.tenant, transfer.group, transfer.exact)
        opened = await self._ask_for(site, want, transfer.deadline_ns)
        transfer.first_byte_ns = now_ns()
        if opened.cause:
            cause = known_cause(opened.cause)
            raise FetchError(cause, f"{site} has no such chunk for us ({cause})")
        header = record.parse(opened.header)
        life = agent.remotes.get(site)
        wrong = record.verify(header, ref, self._layout, life, transfer.exact)
        if wrong == "stale":
            agent.invalidate(site)
        if wrong is not None:
            raise FetchError(wrong, f"{site} sent a chunk that was not asked for ({wrong})")
        segments = {place.segment for place in opened.places}
        await self._meet(agent, site, segments, transfer.deadline_ns)
        memory = self._memory.staging(len(transfer.into))
        await self._read(agent, transfer, opened, memory)
        transfer.last_byte_ns = now_ns()
        if transfer.last_byte_ns - asked_ns > header.lease_ns:
            self._memory.give_back(memory)
            raise FetchError("lease", "the chunk came after its lease had ended")
        try:
            self._compare(transfer, header, memory.view)
            transfer.into[:] = memory.view[: len(transfer.into)]
        finally:
            self._memory.give_back(memory)
        transfer.verified_ns = now_ns()
        return header

    async def _meet(
        self, agent: Agent, site: str, segments: Collection[int], deadline_ns: int
    ) -> None:
        """Make sure that ``segments`` of ``site`` are known; asks it at most once."""
        async with self._meeting.setdefault(site, asyncio.Lock()):
            if agent.knows(site, segments):
                return
            await self._ask_metadata(agent, site, deadline_ns)

    async def _ask_metadata(self, agent: Agent, site: str, deadline_ns: int) -> None:
        blob = await self._control.call(site, ASK, agent.metadata(), deadline_ns)
        agent.load_remote(blob)

    async def _ask_for(self, site: str, want: Wanted, deadline_ns: int) -> Opened:
        body = await self._control.call(site, OPEN, msgspec.msgpack.encode(want), deadline_ns)
        try:
            return msgspec.msgpack.decode(body, type=Opened)
        except msgspec.DecodeError as error:
            raise RecordError(f"no answer to an opened chunk ({error})") from None

    async def _read(
        self, agent: Agent, transfer: Transfer, opened: Opened, memory: Segment
    ) -> None:
        """READ the chunk's pieces, real KV into ``memory`` and filler into its place."""
        chosen = [self._layout.group_bytes[group] for group in self._layout.chosen(transfer.group)]
        sizes = [size for real, fill in chosen for size in (real, fill)]
        if [place.length for place in opened.places] != [size for size in sizes if size]:
            self._memory.give_back(memory)
            raise RecordError(f"descriptors of {transfer.site} are not those of a chunk")
        local, at = [], 0
        for real, fill in chosen:
            local.append(memory.at(at, real))
            at += real
            if fill:
                spare, offset = self._memory.find(memoryview(self._filler))
                local.append(spare.at(offset, fill))
        transfer.wire_bytes = sum(sizes)
        remote = DescriptorList(tuple(Descriptor(*place.key) for place in opened.places))
        try:
            handle = agent.prepare(
                "READ", DescriptorList(tuple(local)), remote, transfer.site, opened.lease
            )
        except CacheError as error:
            self._memory.give_back(memory)
            agent.invalidate(transfer.site)
            raise FetchError("stale", error.message) from None
        handle.post(transfer.deadline_ns)
        try:
            state = await handle.wait(transfer.deadline_ns)
        except BaseException:
            self._land(handle.release, memory)
            raise
        if state != "DONE":
            self._land(handle.release, memory)
            raise handle.error or FetchError("timeout", f"{transfer.site} did not send in time")
        await handle.release()

    def _land(self, release: Callable[[], Awaitable[None]], memory: Segment) -> None:
        """Keep ``memory`` from everybody until the engine has let go of it."""

        async def wait() -> None:
            try:
                await release()
            except CacheError:
                self._memory.forsake(memory)
            else:
                self._memory.give_back(memory)

        task = asyncio.get_running_loop().create_task(wait())
        self._landing[task] = None
        task.add_done_callback(lambda _: self._landing.pop(task, None))

    def _compare(self, transfer: Transfer, header: ChunkHeader, came: memoryview) -> None:
        layout = self._layout
        fillers = group_filler(layout)
        groups = layout.chosen(transfer.group)
        base = layout.group_slices[groups[0]].start
        for group in groups:
            piece = layout.group_slices[group]
            real = came[piece.start - base : piece.stop - base]
            if record.checksum(real, fillers[group]) != header.checksums[group]:
                raise FetchError("corrupt", f"from {transfer.site}: layer group {group}")
