"""NIXL's UCX engine over TCP as a backend of our agents.

Wall clock only: its progress has to be polled. One thread does all of it, because an
agent without NIXL's own spinning progress thread (0.7 of a core while idle) makes
progress only when it is asked. Install with ``pip install 'geokv[nixl]'``.

A read cannot be stopped: after releasing its handle and removing the remote agent bytes
still land when a stalled peer goes on (seen with 1.5.1). So a transfer that is over for
us is kept and polled until it is over for NIXL, and only then is its agent removed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import msgspec

from geokv.cache.substrate.agent import Agent
from geokv.cache.substrate.handle import Handle
from geokv.cache.substrate.segments import MemoryKind, Remote, Segment
from geokv.cache.substrate.worker_thread import PollingThread
from geokv.clock import now_ns
from geokv.errors import CacheError, ConfigError, FetchError, RecordError

_BUSY_S = 20e-6
_IDLE_S = 1e-3
_LOOK_AGAIN_S = 0.1


class _Private(msgspec.Struct, frozen=True, array_like=True):
    """Of a blob: the engine's own name of the agent, and the engine's own metadata."""

    agent: str
    metadata: bytes


@dataclass(eq=False)
class _Flight:
    """A posting that NIXL is not done with; for us it may be over (``told``)."""

    handle: Handle
    unique: str
    request: Any
    deadline_ns: int
    told: bool = False


class NixlBackend:
    """One NIXL agent, UCX over TCP.

    Args:
        name: of our agent; NIXL's is made unique by the incarnation, because it never
            forgets a name that came back.
        loop: in which handles are told of their end.

    Raises:
        ConfigError: the package is missing, or UCX may use other paths than TCP.
    """

    name = "nixl"
    kinds: frozenset[MemoryKind] = frozenset({"DRAM"})
    stops = False

    def __init__(self, name: str, incarnation: int, loop: asyncio.AbstractEventLoop) -> None:
        try:
            from nixl._api import nixl_agent, nixl_agent_config
        except ImportError as error:
            raise ConfigError(
                f"substrate.kind: nixl is not installed ({error})", "pip install 'geokv[nixl]'"
            ) from None
        if os.environ.setdefault("UCX_TLS", "tcp") != "tcp":
            # Shared memory would go past every emulated link, also between namespaces.
            raise ConfigError(
                f"UCX_TLS: must be tcp, got {os.environ['UCX_TLS']!r}", "unset UCX_TLS"
            )
        self._loop = loop
        self._flights: dict[_Flight, None] = {}
        self._registered: dict[int, Any] = {}
        self._loaded: set[str] = set()
        self._leaving: set[str] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self._names: dict[str, str] = {}
        self._theirs: dict[str, str] = {}
        self._nixl: Any = None
        self._agent: Agent | None = None
        self._thread = PollingThread("nixl", self._poll, _BUSY_S, _IDLE_S)
        unique = f"{name}@{incarnation}"
        config = nixl_agent_config(enable_prog_thread=False, backends=["UCX"])
        self._own_name = unique
        self._nixl = self._thread.do(lambda: nixl_agent(unique, config), 30)

    @classmethod
    async def agent(cls, name: str, incarnation: int | None = None) -> Agent:
        """An agent on this engine, which takes up to seconds to start."""
        life = now_ns() if incarnation is None else incarnation
        backend = await asyncio.to_thread(cls, name, life, asyncio.get_running_loop())
        backend._agent = Agent(name, backend, incarnation=life)
        return backend._agent

    # -- memory and metadata ---------------------------------------------------

    def register(self, segment: Segment) -> None:
        region = [(segment.address, len(segment.view), 0, "")]
        try:
            self._registered[segment.id] = self._thread.do(
                lambda: self._nixl.register_memory(region, "DRAM")
            )
        except Exception as error:  # the binding's own classes
            raise CacheError(f"nixl cannot register {len(segment.view)} bytes ({error})") from None

    def deregister(self, segment: Segment) -> None:
        registered = self._registered.pop(segment.id)
        self._thread.do(lambda: self._nixl.deregister_memory(registered))

    def private(self, segments: Sequence[Segment]) -> bytes:
        regions = [(one.address, len(one.view), 0, "") for one in segments]

        def collect() -> bytes:
            shown = self._nixl.get_reg_descs(regions or [(1, 1, 0, "")], "DRAM")
            if not regions:
                shown.clear()
            return bytes(self._nixl.get_partial_agent_metadata(shown, True, ["UCX"]))

        return msgspec.msgpack.encode(_Private(self._own_name, self._thread.do(collect)))

    def load(self, remote: Remote) -> None:
        try:
            private = msgspec.msgpack.decode(remote.private, type=_Private)
        except msgspec.DecodeError as error:
            raise RecordError(f"no nixl metadata of agent {remote.name!r} ({error})") from None
        try:
            self._thread.do(lambda: self._add(private.agent, private.metadata))
        except Exception as error:  # the binding's own classes
            raise CacheError(f"nixl cannot load agent {remote.name!r} ({error})") from None
        self._names[remote.name] = private.agent
        self._theirs[private.agent] = remote.name

    def forget(self, remote: Remote) -> None:
        unique = self._names.pop(remote.name, None)
        if unique is not None:
            self._theirs.pop(unique, None)
            self._thread.submit(lambda: self._remove(unique))

    def _add(self, unique: str, metadata: bytes) -> None:
        """In the thread."""
        self._leaving.discard(unique)
        self._nixl.add_remote_agent(metadata)
        self._loaded.add(unique)

    def _remove(self, unique: str) -> None:
        """In the thread: disconnect, when nothing is under way any more."""
        if any(flight.unique == unique for flight in self._flights):
            self._leaving.add(unique)
        elif unique in self._loaded:
            self._loaded.discard(unique)
            self._leaving.discard(unique)
            self._nixl.remove_remote_agent(unique)

    # -- transfers -------------------------------------------------------------

    def post(self, handle: Handle, deadline_ns: int) -> None:
        unique = self._names[handle.remote.name]
        started = self._thread.submit(lambda: self._start(handle, unique, deadline_ns))
        started.add_done_callback(lambda done: self._started(handle, done))

    def _start(self, handle: Handle, unique: str, deadline_ns: int) -> None:
        local = [(one.segment.address + one.offset, one.length, 0) for one in handle.pairs]
        there = [(one.remote.address + one.remote_offset, one.length, 0) for one in handle.pairs]
        request = self._nixl.initialize_xfer(
            handle.op,
            self._nixl.get_xfer_descs(local, "DRAM"),
            self._nixl.get_xfer_descs(there, "DRAM"),
            unique,
            handle.notice,
        )
        flight = _Flight(handle, unique, request, deadline_ns)
        self._flights[flight] = None
        self._look(flight, self._nixl.transfer(request, handle.notice))

    def _started(self, handle: Handle, done: Future[None]) -> None:
        error = done.exception()
        if error is not None:
            refused = FetchError("unreachable", f"nixl refused the transfer ({error})")
            self._loop.call_soon_threadsafe(handle.ended, refused)

    def _poll(self) -> bool:
        """In the thread: progress, notices, and what has ended."""
        if self._nixl is None:
            return False
        for flight in list(self._flights):
            try:
                state = self._nixl.check_xfer_state(flight.request)
            except Exception:  # the binding's own classes: the other agent is lost
                state = "ERR"
            self._look(flight, state)
        came = self._nixl.get_new_notifs()
        for unique, notices in came.items():
            name = unique.decode() if isinstance(unique, bytes) else unique
            for notice in notices:
                self._loop.call_soon_threadsafe(self._noticed, name, bytes(notice))
        return bool(self._flights or came)

    def _look(self, flight: _Flight, state: str) -> None:
        """In the thread."""
        name = flight.handle.remote.name
        if state != "PROC":
            del self._flights[flight]
            error = None
            if state != "DONE":
                op = flight.handle.op
                error = FetchError("unreachable", f"nixl: the {op} with {name} failed")
            self._tell(flight, error)
            self._nixl.release_xfer_handle(flight.request)
            self._loop.call_soon_threadsafe(self._settled)
            if flight.unique in self._leaving:
                self._remove(flight.unique)
        elif now_ns() >= flight.deadline_ns:
            self._tell(flight, FetchError("timeout", f"nixl: {name} did not answer in time"))

    def _tell(self, flight: _Flight, error: FetchError | None) -> None:
        if not flight.told:
            flight.told = True
            self._loop.call_soon_threadsafe(flight.handle.ended, error)

    def _settled(self) -> None:
        """In the loop: some memory is free of NIXL."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def _noticed(self, unique: str, notice: bytes) -> None:
        if self._agent is not None:
            self._agent.noticed(self._theirs.get(unique, unique.partition("@")[0]), notice)

    async def settle(self, handle: Handle) -> None:
        while await self._thread.ask(lambda: self._drop(handle)):
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            # A request may have ended between the question and the waiting.
            await asyncio.wait([waiter], timeout=_LOOK_AGAIN_S)

    def _drop(self, handle: Handle) -> bool:
        """In the thread: it is over for us; is NIXL still at it?"""
        mine = [flight for flight in self._flights if flight.handle is handle]
        for flight in mine:
            flight.told = True
        return bool(mine)

    def notify(self, remote: Remote, notice: bytes) -> None:
        unique = self._names.get(remote.name)
        if unique is not None:
            self._thread.submit(lambda: self._nixl.send_notif(unique, notice))

    async def close(self) -> None:
        def drop() -> None:
            self._flights.clear()
            self._nixl = None  # its end disconnects everything

        await self._thread.ask(drop)
        await asyncio.to_thread(self._thread.end)
