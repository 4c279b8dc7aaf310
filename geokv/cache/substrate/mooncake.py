"""Mooncake's transfer engine over TCP as a backend of our agents.

Wall clock only: its threads spin and its calls block. A transfer cannot be cancelled:
``settle`` waits for the engine's own end. The engine tells the addresses of all
registered memory to whoever asks its handshake port; what our blobs leave out is out of
sight only for those who keep to the blobs. Install with ``pip install 'geokv[mooncake]'``
(and the system's libibverbs1, libnuma1, libcurl4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np

from geokv.cache.substrate.agent import Agent
from geokv.cache.substrate.handle import Handle
from geokv.cache.substrate.segments import MemoryKind, Remote, Segment
from geokv.cache.substrate.worker_thread import PollingThread
from geokv.errors import CacheError, ConfigError, FetchError, RecordError
from geokv.units import NS_PER_S

_AT_ONCE = 8
_NOTICE_S = 2e-3


class MooncakeBackend:
    """One transfer engine, TCP, peer-to-peer handshake.

    Args:
        host: this host's address, as other agents reach it.
        loop: in which handles are told of their end.

    Raises:
        ConfigError: the package or a library it needs is missing.
        CacheError: the engine does not start.
    """

    name = "mooncake"
    kinds: frozenset[MemoryKind] = frozenset({"DRAM"})
    stops = False

    def __init__(self, host: str, loop: asyncio.AbstractEventLoop) -> None:
        try:
            from mooncake import engine
        except ImportError as error:
            raise ConfigError(
                f"substrate.kind: mooncake cannot be loaded ({error})",
                "pip install 'geokv[mooncake]'; apt-get install libibverbs1 libnuma1 libcurl4",
            ) from None
        self._module: Any = engine
        self._loop = loop
        self._engine: Any = engine.TransferEngine()
        if self._engine.initialize(host, "P2PHANDSHAKE", "tcp", ""):
            raise CacheError(f"mooncake's engine does not start at {host}")
        self._peer_name = f"{host}:{self._engine.get_rpc_port()}"
        self._agent: Agent | None = None
        self._peers: dict[str, str] = {}
        self._flights: dict[Handle, asyncio.Future[int]] = {}
        self._timers: dict[Handle, asyncio.TimerHandle] = {}
        self._spare = np.zeros(8, np.uint8)
        self._engine.register_memory(self._spare.ctypes.data, self._spare.nbytes)
        self._pool = ThreadPoolExecutor(_AT_ONCE, "mooncake")
        self._thread = PollingThread("mooncake-notices", self._poll, _NOTICE_S, _NOTICE_S)

    @classmethod
    async def agent(cls, name: str, host: str, incarnation: int | None = None) -> Agent:
        """An agent on this engine, which takes up to seconds to start."""
        backend = await asyncio.to_thread(cls, host, asyncio.get_running_loop())
        backend._agent = Agent(name, backend, incarnation=incarnation)
        return backend._agent

    # -- memory and metadata ---------------------------------------------------

    def register(self, segment: Segment) -> None:
        if self._engine.register_memory(segment.address, len(segment.view)):
            raise CacheError(f"mooncake cannot register {len(segment.view)} bytes")

    def deregister(self, segment: Segment) -> None:
        if self._engine.unregister_memory(segment.address):
            raise CacheError(f"mooncake does not know segment {segment.id}")

    def private(self, segments: Sequence[Segment]) -> bytes:
        return msgspec.msgpack.encode(self._peer_name)

    def load(self, remote: Remote) -> None:
        try:
            self._peers[remote.name] = msgspec.msgpack.decode(remote.private, type=str)
        except msgspec.DecodeError as error:
            raise RecordError(f"no address of agent {remote.name!r} ({error})") from None

    def forget(self, remote: Remote) -> None:
        self._peers.pop(remote.name, None)

    # -- transfers -------------------------------------------------------------

    def post(self, handle: Handle, deadline_ns: int) -> None:
        peer = self._peers[handle.remote.name]
        local = [one.segment.address + one.offset for one in handle.pairs]
        there = [one.remote.address + one.remote_offset for one in handle.pairs]
        lengths = [one.length for one in handle.pairs]
        flight = self._loop.run_in_executor(
            self._pool, self._transfer, handle.op, peer, local, there, lengths, handle.notice
        )
        self._flights[handle] = flight
        flight.add_done_callback(lambda done: self._landed(handle, done))
        late = FetchError("timeout", f"mooncake: {handle.remote.name} did not answer in time")
        self._timers[handle] = self._loop.call_at(deadline_ns / NS_PER_S, handle.ended, late)

    def _transfer(
        self,
        op: str,
        peer: str,
        local: list[int],
        there: list[int],
        lengths: list[int],
        notice: bytes,
    ) -> int:
        """In a thread of the pool; the engine's status, 0 if all went well."""
        opcode = self._module.TransferOpcode
        code = opcode.Read if op == "READ" else opcode.Write
        told = None
        if notice and self._agent is not None:
            told = self._module.TransferNotify(self._agent.name, notice.hex())
        return int(self._engine.batch_transfer_sync(peer, local, there, lengths, code, told))

    def _landed(self, handle: Handle, done: asyncio.Future[int]) -> None:
        del self._flights[handle]
        self._timers.pop(handle).cancel()
        if done.cancelled():
            handle.ended(FetchError("cancelled", "closed by this site"))
            return
        error = done.exception()
        status = -1 if error is not None else done.result()
        name = handle.remote.name
        if status == 0 and self._peers.get(name) is not None:
            handle.ended(None)
        else:
            why = error or f"status {status}"
            handle.ended(FetchError("unreachable", f"mooncake: {handle.op} with {name}: {why}"))

    async def settle(self, handle: Handle) -> None:
        flight = self._flights.get(handle)
        if flight is not None:
            await asyncio.wait([flight])

    # -- notices ---------------------------------------------------------------

    def notify(self, remote: Remote, notice: bytes) -> None:
        """The engine has notices of transfers only, so this reads one byte."""
        peer = self._peers.get(remote.name)
        first = next(iter(remote.segments.values()), None)
        if peer is not None and first is not None:
            spare = int(self._spare.ctypes.data)
            self._pool.submit(self._transfer, "READ", peer, [spare], [first.address], [1], notice)

    def _poll(self) -> bool:
        for came in self._engine.get_notifies():
            try:
                notice = bytes.fromhex(came.msg)
            except ValueError:
                continue  # another program's
            self._loop.call_soon_threadsafe(self._noticed, came.name, notice)
        return False

    def _noticed(self, name: str, notice: bytes) -> None:
        if self._agent is not None:
            self._agent.noticed(name, notice)

    async def close(self) -> None:
        if self._flights:
            await asyncio.wait(list(self._flights.values()))
        await asyncio.to_thread(self._thread.end)
        await asyncio.to_thread(self._pool.shutdown)
