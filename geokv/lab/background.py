"""Traffic that is not the system under test: others on a link, or many senders at one site.

A process of its own makes it (``flows.py``). What it costs in real time is the bytes it moves:
a share of a fast line for long is much work, and says so in what it sent.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import sys
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

from geokv.errors import LabError
from geokv.lab.build import Lab
from geokv.lab.flows import COUNT
from geokv.lab.link_plan import ETHERNET_BYTES

_START_DEADLINE_S = 20.0
_END_DEADLINE_S = 5.0
_UDP_HEADER_BYTES = 28


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction of one connection, or a stream of datagrams.

    Attributes:
        rate_bps: UDP counts whole frames, TCP payload; 0 is as fast as TCP can.
        bytes: how much TCP sends; 0 is without end.
        payload_bytes, frame_bytes: of one datagram, without and with its headers.
    """

    kind: Literal["tcp", "udp"]
    sender_netns: str
    receiver_netns: str
    source: str
    goal: str
    rate_bps: float
    payload_bytes: int = 0
    frame_bytes: int = 0
    bytes: int = 0


class FlowCount(NamedTuple):
    """What became of a flow so far.

    Attributes:
        sent_bytes: handed to the network; of UDP whole frames.
        arrived_bytes: taken from it by the receiver; 0 of UDP, which nobody reads.
        ended_ns: when the last asked byte came; 0 is not yet.
    """

    sent_bytes: int
    arrived_bytes: int
    ended_ns: int


def link_flows(
    lab: Lab, link: str, sender: str, kind: Literal["tcp", "udp"], share: float, count: int
) -> list[Flow]:
    """Flows from one end of a link to the other, over this link whatever the routes say.

    Args:
        share: of the line's rate, of all of them together.

    Raises:
        ConfigError: no such link or end.
    """
    plan = lab.link_plan(link)
    receiver = plan.b if sender == plan.a else plan.a
    rate = plan.rate_bps if kind == "udp" else plan.payload_rate_bps
    return [
        Flow(
            kind,
            lab.netns(sender),
            lab.netns(receiver),
            lab.link_address(link, sender),
            lab.link_address(link, receiver),
            rate * share / count,
            plan.mtu - _UDP_HEADER_BYTES,
            plan.mtu + ETHERNET_BYTES,
        )
        for _ in range(count)
    ]


def path_flow(lab: Lab, sender: str, receiver: str, size_bytes: int) -> Flow:
    """One TCP transfer of so many bytes between two sites by the routes, as fast as it goes."""
    return Flow(
        "tcp",
        lab.netns(sender),
        lab.netns(receiver),
        lab.address(sender),
        lab.address(receiver),
        0.0,
        bytes=size_bytes,
    )


class Traffic:
    """Flows that run from ``start`` to ``stop``; use as an async context manager.

    Raises:
        LabError: from ``start``: a connection or the process could not be made.
    """

    def __init__(self, flows: list[Flow]) -> None:
        self._flows = flows
        self._size = max(1, len(flows)) * COUNT.size
        self._file = os.memfd_create("flows", os.MFD_CLOEXEC)
        os.ftruncate(self._file, self._size)
        self._memory = mmap.mmap(self._file, self._size)
        self._last: list[FlowCount] = []
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Traffic:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Return once every flow is connected and sends."""
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "geokv.lab.flows",
            str(self._file),
            json.dumps([asdict(flow) for flow in self._flows]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=(self._file,),
        )
        assert process.stdout is not None and process.stderr is not None
        try:
            async with asyncio.timeout(_START_DEADLINE_S):
                if await process.stdout.readline() == b"ready\n":
                    return
                words = (await process.stderr.read()).decode(errors="replace").strip()
        except TimeoutError:
            words = f"not ready after {_START_DEADLINE_S:g} s"
        await self.stop()
        raise LabError(f"background flows could not start: {words.rpartition(chr(10))[2]}")

    def counts(self) -> list[FlowCount]:
        """Of every flow, as of now or of its end."""
        if self._memory.closed:
            return self._last
        whole = self._memory[: len(self._flows) * COUNT.size]
        return [FlowCount(*numbers) for numbers in COUNT.iter_unpack(whole)]

    async def stop(self) -> None:
        """End all flows at once; harmless when repeated."""
        process, self._process = self._process, None
        try:
            if process is not None:
                await self._end(process)
        finally:
            if not self._memory.closed:
                self._last = self.counts()
                self._memory.close()
                os.close(self._file)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_END_DEADLINE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
