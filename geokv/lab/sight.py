"""Looking at a way through the lab from outside, without holding up the event loop.

One packet of 64 bytes at a time, from end to end: over one link and no other (raw frames), or
between two sites' own addresses by whatever route holds (datagrams). A sight says when a way
began to carry and when it ceased to, to a millisecond, for 64 bytes a look.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple, Self

from geokv.clock import now_ns
from geokv.errors import LabError
from geokv.lab import wiring
from geokv.lab.arrivals import Arrivals, lost_in_a_row
from geokv.lab.build import Lab
from geokv.lab.enter import in_netns
from geokv.lab.link_plan import wire_time_ns
from geokv.lab.probe import ETHERTYPE, SMALL_FRAME_BYTES
from geokv.units import NS_PER_S

LOOK_EVERY_S = 0.001
_SLACK_NS = 2_000_000
"""Beyond the way's own delay; the event loop's timers round up to a millisecond."""

_STAMP = struct.Struct("=8sI")
_HEADERS = 14
_IP_AND_UDP_BYTES = 28
_MOST_SEGMENTS_BYTES = 65_550
"""Of what segmentation offload hands on as one packet."""


class Crossing(NamedTuple):
    """One packet that came through: when it was sent, and when it came."""

    sent_ns: int
    came_ns: int


class Sight(ABC):
    """Sockets at both ends of a way; use as a context manager.

    Attributes:
        packets, sent_bytes: what all looks together put on the way.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.packets = self.sent_bytes = 0
        self._nonce = os.urandom(8)
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets."""
        for end in self._sockets:
            end.close()

    async def crosses(self, end: int = 0, wait_s: float | None = None) -> Crossing | None:
        """Send one packet from an end to the other; None when it did not come.

        Args:
            wait_s: how long to wait; by default as long as the way and what is queued on it
                now take, and 2 ms.
        """
        with self._listening(1 - end) as arrivals:
            number, sent_ns = self._send(end)
            until_ns = now_ns() + (self._patience_ns() if wait_s is None else round(wait_s * 1e9))
            while number not in arrivals.came_ns:
                if not await arrivals.more((until_ns - now_ns()) / NS_PER_S):
                    return None
            return Crossing(sent_ns, arrivals.came_ns[number])

    async def round_trip_ns(self, looks: int = 3) -> int | None:
        """Shortest of a few round trips; None when one packet was lost."""
        best: int | None = None
        for _ in range(looks):
            there = await self.crosses(0)
            back = await self.crosses(1) if there else None
            if there is None or back is None:
                return None
            trip = there.came_ns - there.sent_ns + back.came_ns - back.sent_ns
            best = trip if best is None else min(best, trip)
        return best

    async def until_open(self, end: int = 0, *, deadline_s: float) -> Crossing:
        """Send a packet every millisecond until one comes through.

        Returns:
            The first that did: the way carried when it was sent.

        Raises:
            LabError: none did by the deadline.
        """
        until_ns = now_ns() + round(deadline_s * NS_PER_S)
        sent: dict[int, int] = {}
        with self._listening(1 - end) as arrivals:
            while now_ns() < until_ns:
                number, sent_ns = self._send(end)
                sent[number] = sent_ns
                if await arrivals.more(LOOK_EVERY_S):
                    first = min(arrivals.came_ns)
                    return Crossing(sent[first], arrivals.came_ns[first])
        raise LabError(f"{self.what}: nothing comes through, after {deadline_s:g} s of looking")

    async def until_shut(self, end: int = 0, *, looks: int = 3, deadline_s: float) -> int:
        """Send a packet every millisecond until some in a row are lost.

        Returns:
            When the first of them was sent.

        Raises:
            LabError: packets still come through at the deadline.
        """
        until_ns = now_ns() + round(deadline_s * NS_PER_S)
        sent: list[tuple[int, int]] = []
        with self._listening(1 - end) as arrivals:
            while now_ns() < until_ns:
                sent.append(self._send(end))
                await asyncio.sleep(LOOK_EVERY_S)
                given_up_ns = now_ns() - self._patience_ns()
                lost = lost_in_a_row(sent, arrivals.came_ns, given_up_ns)
                if len(lost) >= looks:
                    return lost[0]
        raise LabError(f"{self.what}: packets still come through after {deadline_s:g} s")

    def _send(self, end: int) -> tuple[int, int]:
        """Number and moment of a new packet; one without a carrier or a route is lost at once."""
        number = self.packets
        self.packets += 1
        sent_ns = now_ns()
        with contextlib.suppress(OSError):
            self._sockets[end].send(self._packet(end, number))
            self.sent_bytes += SMALL_FRAME_BYTES
        return number, sent_ns

    @contextlib.contextmanager
    def _listening(self, end: int) -> Iterator[Arrivals]:
        """What comes to an end meanwhile; what came before is left out."""
        loop, listener = asyncio.get_running_loop(), self._sockets[end]
        arrivals = Arrivals()

        def on_readable() -> None:
            while True:
                try:
                    data = listener.recv(65535)
                except OSError:  # nothing more, or word of a packet that could not go
                    return
                stamp = self._stamp(data)
                if stamp is not None and stamp[0] == self._nonce and stamp[1] >= first:
                    arrivals.add(stamp[1])

        first = self.packets
        loop.add_reader(listener, on_readable)
        try:
            yield arrivals
        finally:
            loop.remove_reader(listener)

    def _patience_ns(self) -> int:
        return self._delay_ns() + _SLACK_NS

    @abstractmethod
    def _delay_ns(self) -> int:
        """The longest that a packet sent now is on its way."""

    @abstractmethod
    def _packet(self, end: int, number: int) -> bytes: ...

    @abstractmethod
    def _stamp(self, data: bytes) -> tuple[bytes, int] | None: ...


class LinkSight(Sight):
    """Over one link, whatever the routes say: end 0 is its side a."""

    def __init__(self, lab: Lab, link: str) -> None:
        super().__init__(f"link {link}")
        plan = lab.link_plan(link)
        self._lab, self._link = lab, link
        macs = [bytes.fromhex(mac.replace(":", "")) for mac in lab.wiring.links[link].macs]
        kind = struct.pack("!H", ETHERTYPE)
        self._heads = (macs[1] + macs[0] + kind, macs[0] + macs[1] + kind)
        try:
            for site, far in ((plan.a, plan.b), (plan.b, plan.a)):
                with in_netns(lab.netns(site)):
                    self._sockets.append(_frames(wiring.to_neighbour(far)))
        except BaseException:
            self.close()
            raise

    def _delay_ns(self) -> int:
        return _longest_ns(self._lab, self._link)

    def _packet(self, end: int, number: int) -> bytes:
        body = _STAMP.pack(self._nonce, number)
        return (self._heads[end] + body).ljust(SMALL_FRAME_BYTES, b"\0")

    def _stamp(self, data: bytes) -> tuple[bytes, int] | None:
        if len(data) != SMALL_FRAME_BYTES:
            return None
        nonce, number = _STAMP.unpack_from(data, _HEADERS)
        return nonce, number


class PathSight(Sight):
    """Between two sites' own addresses, by the routes: end 0 is the first site."""

    def __init__(self, lab: Lab, first: str, second: str) -> None:
        super().__init__(f"{first} to {second}")
        self._lab = lab
        try:
            for site in (first, second):
                with in_netns(lab.netns(site)):
                    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                end.setblocking(False)
                self._sockets.append(end)
                end.bind((lab.address(site), 0))
            names = [end.getsockname() for end in self._sockets]
            for end, far in zip(self._sockets, reversed(names), strict=True):
                end.connect(far)
        except BaseException:
            self.close()
            raise

    def _delay_ns(self) -> int:
        # whatever way the routes take now, it takes no link twice
        return sum(_longest_ns(self._lab, link) for link in self._lab.plan.links)

    def _packet(self, end: int, number: int) -> bytes:
        body = _STAMP.pack(self._nonce, number)
        return body.ljust(SMALL_FRAME_BYTES - _HEADERS - _IP_AND_UDP_BYTES, b"\0")

    def _stamp(self, data: bytes) -> tuple[bytes, int] | None:
        if len(data) < _STAMP.size:
            return None
        nonce, number = _STAMP.unpack_from(data)
        return nonce, number


def _longest_ns(lab: Lab, link: str) -> int:
    """Of the busier direction of a link; what is on its way counts as queued, which is too much
    and does no harm."""
    plan = lab.link_plan(link)
    most_bytes = _MOST_SEGMENTS_BYTES if plan.offloads else plan.mtu + _HEADERS
    queued = max(state.queued for state in lab.qdiscs(link))
    return plan.delay_ns + plan.jitter_ns + queued * wire_time_ns(most_bytes, plan.rate_bps)


def _frames(interface: str) -> socket.socket:
    try:
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    except PermissionError:
        raise LabError("packet sockets need root", "use --clock virtual, or run as root") from None
    end.setblocking(False)
    end.bind((interface, ETHERTYPE))
    return end
