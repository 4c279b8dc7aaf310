"""A TCP proxy on loopback that damages the stream at a chosen byte.

It stands for the wire: corruption is injected between the sites, never inside them.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Literal

Damage = Literal["flip", "cut", "stall", "slow"]


@dataclass
class _Armed:
    damage: Damage
    offset: int
    fired: bool = False


class Proxy:
    """Forwards ``port`` to ``target_port``; damages bytes from the server to the client.

    ``arm`` counts offsets from the moment it is called, over all connections together,
    so a test arms it while the connections are idle and uses one data stream.
    """

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.fired = 0
        self.frozen = False
        """Nothing the servers say comes through, as long as this holds."""
        self.forwarded_bytes = 0
        self._armed: _Armed | None = None
        self._seen = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.answers = bytearray()
        self._keeping = False
        self._recorded: list[bytes] | None = None
        self._recorded_answers: list[bytes] = []
        self._to_server: list[asyncio.StreamWriter] = []

    async def start(self) -> Proxy:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def arm(self, damage: Damage, offset: int = 0) -> None:
        self._armed = _Armed(damage, offset)
        self._seen = 0

    def record_into(self, recorded: list[bytes], answers: list[bytes] | None = None) -> None:
        """Keep what clients send from now on, and what they are answered, one item per
        connection in order."""
        self._recorded = recorded
        self._recorded_answers = [] if answers is None else answers

    def keep_answers(self) -> None:
        """Keep what servers send from now on, in ``answers``."""
        self._keeping = True

    def inject(self, connection: int, data: bytes) -> None:
        """Send bytes to the server in the name of the client of that connection."""
        self._to_server[connection].write(data)

    def disarm(self) -> None:
        self._armed = None

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            there_reader, there = await asyncio.open_connection("127.0.0.1", self.target_port)
        except ConnectionRefusedError:
            writer.close()
            return
        self._writers.append(there)
        connection = len(self._to_server)
        self._to_server.append(there)
        if self._recorded is not None:
            self._recorded.append(b"")
            self._recorded_answers.append(b"")
        for source, sink, damaged in ((reader, there, False), (there_reader, writer, True)):
            pump = self._pump(source, sink, damaged, connection)
            task = asyncio.get_running_loop().create_task(pump)
            self._tasks.add(task)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        damaged: bool,
        connection: int,
    ) -> None:
        try:
            while data := await source.read(16384):
                if damaged:
                    data = await self._damage(data)
                    if self._keeping:
                        self.answers += data
                    if self._recorded is not None:
                        self._recorded_answers[connection] += data
                elif self._recorded is not None:
                    self._recorded[connection] += data
                self.forwarded_bytes += len(data)
                sink.write(data)
                await sink.drain()
        except (ConnectionError, EOFError):
            pass
        finally:
            sink.close()

    async def _damage(self, data: bytes) -> bytes:
        while self.frozen:
            await asyncio.sleep(0.005)
        armed, start = self._armed, self._seen
        self._seen += len(data)
        if armed is None or not start <= armed.offset < self._seen:
            if armed is not None and armed.fired and armed.damage == "slow":
                await asyncio.sleep(0.02)
            return data
        armed.fired = True
        self.fired += 1
        at = armed.offset - start
        if armed.damage == "flip":
            return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        if armed.damage == "cut":
            raise EOFError
        if armed.damage == "stall":
            await asyncio.sleep(3600)
        return data
