"""NIXL's UCX engine over TCP as a backend of our agents.

Wall clock only: its progress has to be polled. One thread does all of it, because an
agent without NIXL's own spinning progress thread (0.7 of a core while idle) makes
progress only when it is asked. Install with ``pip install 'geokv[nixl]'``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import msgspec

from geokv.cache.substrate.agent import Agent, Handle, MemoryKind, Remote, Segment
from geokv.cache.substrate.worker_thread import PollingThread
from geokv.clock import now_ns
from geokv.errors import CacheError, ConfigError, FetchError, RecordError

_BUSY_S = 20e-6
_IDLE_S = 1e-3


class _Private(msgspec.Struct, frozen=True, array_like=True):
    """Of a blob: the engine's own name of the agent, and the engine's own metadata."""

    agent: str
    metadata: bytes


@dataclass(eq=False)
class _Flight:
    """A posting under way."""

    handle: Handle
    request: Any
    deadline_ns: int


class NixlBackend:
    """One NIXL agent, UCX over TCP.

    Args:
        name: of our agent; NIXL's is made unique by the incarnation, because it never
            forgets a name that came back.

    Raises:
        ConfigError: the package is missing, or UCX may use other paths than TCP.

    Attributes:
        unclean: failed transfers that NIXL had nothing left to disconnect for.
    """

    name = "nixl"
    kinds: frozenset[MemoryKind] = frozenset({"DRAM"})

    def __init__(self, name: str, incarnation: int) -> None:
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
        self.unclean = 0
        self._loop = asyncio.get_running_loop()
        self._flights: dict[_Flight, None] = {}
        self._registered: dict[int, Any] = {}
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
    def agent(cls, name: str, incarnation: int | None = None) -> Agent:
        """An agent on this engine; call it in the event loop that will use it."""
        life = now_ns() if incarnation is None else incarnation
        backend = cls(name, life)
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
            self._thread.do(lambda: self._nixl.add_remote_agent(private.metadata))
        except Exception as error:  # the binding's own classes
            raise CacheError(f"nixl cannot load agent {remote.name!r} ({error})") from None
        self._names[remote.name] = private.agent
        self._theirs[private.agent] = remote.name

    def forget(self, remote: Remote) -> None:
        unique = self._names.pop(remote.name, None)
        if unique is not None:
            self._theirs.pop(unique, None)
            self._thread.submit(lambda: self._drop(unique, remote))

    def _drop(self, unique: str, remote: Remote) -> None:
        for flight in [one for one in self._flights if one.handle.remote is remote]:
            self._land(flight, FetchError("unreachable", f"agent {remote.name!r} was forgotten"))
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
        flight = _Flight(handle, request, deadline_ns)
        self._flights[flight] = None
        state = self._nixl.transfer(request, handle.notice)
        if state != "PROC":
            self._land(flight, _verdict(state, handle))

    def _started(self, handle: Handle, done: Future[None]) -> None:
        error = done.exception()
        if error is not None:
            self._tell(handle, FetchError("unreachable", f"nixl refused the transfer ({error})"))

    def _poll(self) -> bool:
        """In the thread: progress, notices, and what has ended."""
        if self._nixl is None:
            return False
        for flight in list(self._flights):
            try:
                state = self._nixl.check_xfer_state(flight.request)
            except Exception as error:  # the binding's own classes
                name = flight.handle.remote.name
                self._land(flight, FetchError("unreachable", f"{name} is lost ({error})"))
                continue
            if state != "PROC":
                self._land(flight, _verdict(state, flight.handle))
            elif now_ns() >= flight.deadline_ns:
                name = flight.handle.remote.name
                self._land(flight, FetchError("timeout", f"nixl: {name} did not answer in time"))
        came = self._nixl.get_new_notifs()
        for unique, notices in came.items():
            name = unique.decode() if isinstance(unique, bytes) else unique
            for notice in notices:
                self._loop.call_soon_threadsafe(self._noticed, name, bytes(notice))
        return bool(self._flights or came)

    def _land(self, flight: _Flight, error: FetchError | None) -> None:
        del self._flights[flight]
        if error is None:
            self._nixl.release_xfer_handle(flight.request)
        else:
            # Disconnecting is what keeps late bytes out of memory that is free again.
            unique = self._names.get(flight.handle.remote.name)
            try:
                self._nixl.release_xfer_handle(flight.request)
                if unique is not None:
                    self._nixl.remove_remote_agent(unique)
            except Exception:  # of the binding: the other agent is gone from it already
                self.unclean += 1
        self._tell(flight.handle, error)

    def _tell(self, handle: Handle, error: FetchError | None) -> None:
        self._loop.call_soon_threadsafe(handle.ended, error)

    def _noticed(self, unique: str, notice: bytes) -> None:
        if self._agent is not None:
            self._agent.noticed(self._theirs.get(unique, unique.partition("@")[0]), notice)

    async def settle(self, handle: Handle) -> None:
        def stop() -> None:
            for flight in [one for one in self._flights if one.handle is handle]:
                self._land(flight, FetchError("cancelled", "the transfer was given up"))

        await self._thread.ask(stop)

    def notify(self, remote: Remote, notice: bytes) -> None:
        unique = self._names.get(remote.name)
        if unique is not None:
            self._thread.submit(lambda: self._nixl.send_notif(unique, notice))

    async def close(self) -> None:
        def drop() -> None:
            for flight in list(self._flights):
                self._land(flight, FetchError("cancelled", "closed by this site"))
            self._nixl = None

        await self._thread.ask(drop)
        await asyncio.to_thread(self._thread.end)


def _verdict(state: str, handle: Handle) -> FetchError | None:
    if state == "DONE":
        return None
    return FetchError("unreachable", f"nixl: the {handle.op} with {handle.remote.name} failed")
