"""The two ends of tests/bench/transfer.py: one class per engine and side.

A child answers JSON lines on an inherited socket, so that what engines print on their
standard output disturbs nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import sys
import time
from typing import Any

import numpy as np

from geokv.cache import (
    ChunkLayout,
    DramTier,
    LocalDirectory,
    Lru,
    SharedCache,
    TcpTransport,
    chunk_refs,
    root_key,
)
from geokv.clock import now_ns

SECRET = b"secret of the transfer benchmark"
TENANT = "bench"
LONGEST_S = 60


def content(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(size).integers(0, 256, size, np.uint8)


def digest(memory: Any) -> str:
    return hashlib.blake2b(memory, digest_size=16).hexdigest()


def layout_of(size: int) -> ChunkLayout:
    """One chunk of 256 tokens in four layer groups is exactly ``size`` bytes."""
    per_token = size // 256
    return ChunkLayout("bench", "int8", 4, 1, per_token // 8, 16, 256, 4, per_token)


class GeokvServer:
    """A whole site's cache per size: the chunk lies in its DRAM tier."""

    def __init__(
        self, host: str, sizes: list[int], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.loop = loop or asyncio.new_event_loop()
        self._host = host
        self._ports = {size: self.loop.run_until_complete(self._start(size)) for size in sizes}

    async def _start(self, size: int) -> int:
        layout = layout_of(size)
        cache = SharedCache(
            "server",
            layout,
            DramTier(layout, size, Lru()),
            LocalDirectory(),
            TcpTransport("server", layout, SECRET),
        )
        port = await cache.start(self._host, 0, {})

        def fill(view: memoryview) -> None:
            view[:] = content(size).data

        assert await cache.store(ref_of(size), fill)
        return port

    def info(self) -> dict[str, Any]:
        return {"host": self._host, "ports": self._ports}


def ref_of(size: int) -> Any:
    layout = layout_of(size)
    root = root_key(layout.model_fingerprint, TENANT.encode())
    return chunk_refs(root, list(range(256)), 256, 16, TENANT)[0]


class GeokvReader:
    """GET by key over TCP, authenticated, every byte verified before it counts."""

    def __init__(self, host: str, peer: dict[str, Any]) -> None:
        self.loop = asyncio.new_event_loop()
        self._into = np.full(max(map(int, peer["ports"])), 255, np.uint8).data
        self._transports: dict[int, TcpTransport] = {}
        for text, port in peer["ports"].items():
            size = int(text)
            transport = TcpTransport("reader", layout_of(size), SECRET)
            transport.add_peer("server", peer["host"], port)
            self._transports[size] = transport
        self.loop.run_until_complete(self._connect())

    async def _connect(self) -> None:
        for transport in self._transports.values():
            await transport.connect("server", now_ns() + LONGEST_S * 10**9)

    async def read_many(self, size: int, count: int) -> list[int]:
        transport, ref, into = self._transports[size], ref_of(size), self._into[:size]
        times = []
        for _ in range(count):
            start = time.perf_counter_ns()
            await transport.submit("server", ref, into, now_ns() + LONGEST_S * 10**9).done
            times.append(time.perf_counter_ns() - start)
        return times

    def digest(self, size: int) -> str:
        return digest(self._into[:size])


class MooncakeServer:
    def __init__(self, host: str, sizes: list[int]) -> None:
        from mooncake.engine import TransferEngine

        self._memory = {size: content(size) for size in sizes}
        self._engine = TransferEngine()
        assert self._engine.initialize(f"{host}:17001", "P2PHANDSHAKE", "tcp", "") == 0
        for memory in self._memory.values():
            assert self._engine.register_memory(memory.ctypes.data, memory.nbytes) == 0
        self._host = host

    def info(self) -> dict[str, Any]:
        addresses = {size: memory.ctypes.data for size, memory in self._memory.items()}
        return {"peer": f"{self._host}:{self._engine.get_rpc_port()}", "addresses": addresses}


class MooncakeReader:
    """``transfer_sync_read`` of one buffer; the engine checks nothing."""

    def __init__(self, host: str, peer: dict[str, Any]) -> None:
        from mooncake.engine import TransferEngine

        self._addresses = {int(size): at for size, at in peer["addresses"].items()}
        self._memory = np.full(max(self._addresses), 255, np.uint8)
        self._engine = TransferEngine()
        assert self._engine.initialize(f"{host}:17001", "P2PHANDSHAKE", "tcp", "") == 0
        assert self._engine.register_memory(self._memory.ctypes.data, self._memory.nbytes) == 0
        self._peer = peer["peer"]

    def read(self, size: int) -> None:
        at = self._memory.ctypes.data
        failed = self._engine.transfer_sync_read(self._peer, at, self._addresses[size], size)
        assert not failed, failed

    def digest(self, size: int) -> str:
        return digest(self._memory[:size])


class NixlServer:
    """The target needs its progress thread for reads over TCP; it spins, that is its cost."""

    def __init__(self, host: str, sizes: list[int]) -> None:
        from nixl._api import nixl_agent, nixl_agent_config

        self._memory = {size: content(size) for size in sizes}
        self._agent = nixl_agent("server", nixl_agent_config(backends=["UCX"]))
        regions = [(memory.ctypes.data, memory.nbytes, 0, "") for memory in self._memory.values()]
        self._registered = self._agent.register_memory(regions, "DRAM")

    def info(self) -> dict[str, Any]:
        addresses = {size: memory.ctypes.data for size, memory in self._memory.items()}
        return {"addresses": addresses, "metadata": self._agent.get_agent_metadata().hex()}


class NixlReader:
    """One prepared request per size, posted again for each read, polled every 20 µs."""

    def __init__(self, host: str, peer: dict[str, Any]) -> None:
        from nixl._api import nixl_agent, nixl_agent_config

        addresses = {int(size): at for size, at in peer["addresses"].items()}
        self._memory = np.full(max(addresses), 255, np.uint8)
        config = nixl_agent_config(enable_prog_thread=False, backends=["UCX"])
        self._agent = nixl_agent("reader", config)
        local = self._memory.ctypes.data
        self._agent.register_memory([(local, self._memory.nbytes, 0, "")], "DRAM")
        name = self._agent.add_remote_agent(bytes.fromhex(peer["metadata"]))
        self._handles = {
            size: self._agent.initialize_xfer(
                "READ",
                self._agent.get_xfer_descs([(local, size, 0)], "DRAM"),
                self._agent.get_xfer_descs([(at, size, 0)], "DRAM"),
                name if isinstance(name, str) else name.decode(),
            )
            for size, at in addresses.items()
        }

    def read(self, size: int) -> None:
        handle = self._handles[size]
        state = self._agent.transfer(handle)
        while state == "PROC":
            time.sleep(20e-6)
            state = self._agent.check_xfer_state(handle)
        assert state == "DONE", state

    def digest(self, size: int) -> str:
        return digest(self._memory[:size])


ENDS: dict[str, tuple[Any, Any]] = {
    "geokv": (GeokvServer, GeokvReader),
    "mooncake": (MooncakeServer, MooncakeReader),
    "nixl": (NixlServer, NixlReader),
}


def read_many(reader: Any, size: int, count: int) -> list[int]:
    if isinstance(reader, GeokvReader):
        return reader.loop.run_until_complete(reader.read_many(size, count))
    times = []
    for _ in range(count):
        start = time.perf_counter_ns()
        reader.read(size)
        times.append(time.perf_counter_ns() - start)
    return times


def child(engine: str, side: str, host: str, descriptor: int) -> None:
    """Serve orders until the parent closes its end."""
    control = socket.socket(fileno=descriptor)
    orders = control.makefile("rw", encoding="utf-8")
    first = json.loads(orders.readline())
    end = ENDS[engine][side == "reader"](host, first)

    def answer(order: dict[str, Any]) -> dict[str, Any]:
        if order["do"] == "read":
            return {"times": read_many(end, order["size"], order["count"])}
        if order["do"] == "digest":
            return {"digest": end.digest(order["size"])}
        return {"cpu_s": time.process_time()}

    def one() -> None:
        line = orders.readline()
        if not line:
            os._exit(0)  # engines' threads must not delay the end
        orders.write(json.dumps(answer(json.loads(line))) + "\n")
        orders.flush()

    orders.write(json.dumps(end.info() if side == "server" else {}) + "\n")
    orders.flush()
    if isinstance(end, GeokvServer):
        end.loop.add_reader(control, one)
        end.loop.run_forever()
    while True:
        one()


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
