"""Our own measurement of a link: single probes, and trains of them.

Frames are built by scapy once and sent by packet sockets on the two ends of the link, so they
cross this link and no other, whatever the routes say. All namespaces share one clock: one-way
times are real. Nothing is subtracted: a time runs from just before the send call to the return
of the receive call, so it holds the frame's own time on the wire and the host's part.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from geokv.clock import now_ns
from geokv.errors import LabError
from geokv.lab import wiring
from geokv.lab.build import Lab
from geokv.lab.enter import in_netns
from geokv.lab.link_plan import LinkPlan, wire_time_ns
from geokv.units import NS_PER_S

ETHERTYPE = 0x88B5
"""IEEE 802 local experimental: no stack answers it."""

SMALL_FRAME_BYTES = 64
_STAMP = struct.Struct("=8sI")
_BUFFER_BYTES = 64 * 2**20
_SLACK_S = 0.05
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_ANCILLARY_BYTES = 64


@dataclass(slots=True)
class Echoes:
    """Probes sent one at a time from a to b and back.

    Attributes:
        forward_ns, backward_ns, rtt_ns: of those that came back.
    """

    sent: int = 0
    forward_ns: list[int] = field(default_factory=list)
    backward_ns: list[int] = field(default_factory=list)
    rtt_ns: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Train:
    """Frames sent back to back in one direction.

    Attributes:
        intact: different frames that came whole.
        corrupt: frames that came with other bytes than sent.
        duplicate: whole frames beyond the first copy.
        overtook: frames that came sooner than the link's delay allows.
        line_rate_bps: of the second half, None when too few arrived.
        lost_numbers: which frames never came whole, ascending.
    """

    sent: int = 0
    intact: int = 0
    corrupt: int = 0
    duplicate: int = 0
    overtook: int = 0
    line_rate_bps: float | None = None
    lost_numbers: list[int] = field(default_factory=list)


class LinkProbe:
    """Packet sockets on both ends of a link; use as a context manager."""

    def __init__(self, lab: Lab, link: str) -> None:
        self.plan = lab.link_plan(link)
        self._nonce = os.urandom(8)
        self._frames: dict[tuple[int, int], bytes] = {}
        self._sockets: list[socket.socket] = []
        self._macs = lab.wiring.links[link].macs
        ends = (self.plan.a, self.plan.b)
        try:
            for site, far in (ends, ends[::-1]):
                with in_netns(lab.netns(site)):
                    self._sockets.append(_packet_socket(wiring.to_neighbour(far)))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> LinkProbe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets."""
        for end in self._sockets:
            end.close()

    def echo(self, count: int) -> Echoes:
        """Send ``count`` probes one after another, each alone on the link."""
        found = Echoes()
        self._wait_at_most(_SLACK_S + 2 * _one_way_bound_s(self.plan, SMALL_FRAME_BYTES))
        for number in range(count):
            found.sent += 1
            there, back = (self._numbered(end, number, SMALL_FRAME_BYTES) for end in (0, 1))
            out = now_ns()
            self._sockets[0].send(there)
            turned = self._await(1, number)
            if turned is None:
                continue
            self._sockets[1].send(back)
            home = self._await(0, number)
            if home is None:
                continue
            found.forward_ns.append(turned - out)
            found.backward_ns.append(home - turned)
            found.rtt_ns.append(home - out)
        return found

    def train(self, end: int, count: int, size_bytes: int = SMALL_FRAME_BYTES) -> Train:
        """Send ``count`` frames back to back from an end (0 is a) to the other."""
        settings = (self.plan.forward, self.plan.backward)[end]
        soonest = settings.delay_ns - settings.jitter_ns - 1000
        found = Train()
        stamps: list[int] = []
        seen: set[int] = set()
        batch = max(1, min(count, settings.limit_packets // 2))
        for start in range(0, count, batch):
            numbers = range(start, min(count, start + batch))
            sent_at = {}
            for number in numbers:
                frame = self._numbered(end, number, size_bytes)
                sent_at[number] = now_ns()
                self._sockets[end].send(frame)
                found.sent += 1
            quiet_s = _SLACK_S + _one_way_bound_s(self.plan, size_bytes * len(numbers))
            for stamp, got in self._arrivals(1 - end, size_bytes, quiet_s, numbers[-1]):
                stamps.append(stamp)
                if got is None:
                    found.corrupt += 1
                elif got in seen:
                    found.duplicate += 1
                else:
                    seen.add(got)
                    found.intact += 1
                    if got in sent_at and stamp - sent_at[got] < soonest:
                        found.overtook += 1
                        stamps.pop()
        found.lost_numbers = [number for number in range(count) if number not in seen]
        tail = stamps[len(stamps) // 2 :]
        if count <= batch and len(tail) > 8 and tail[-1] > tail[0]:
            bits = (len(tail) - 1) * size_bytes * 8
            found.line_rate_bps = bits * NS_PER_S / (tail[-1] - tail[0])
        return found

    def _numbered(self, end: int, number: int, size_bytes: int) -> bytes:
        head, tail = self._frame(end, size_bytes)
        return head + _STAMP.pack(self._nonce, number) + tail

    def _frame(self, end: int, size_bytes: int) -> tuple[bytes, bytes]:
        key = (end, size_bytes)
        if key not in self._frames:
            self._frames[key] = _build_frame(self._macs[1 - end], self._macs[end], size_bytes)
        frame = self._frames[key]
        return frame[:14], frame[14 + _STAMP.size :]

    def _wait_at_most(self, seconds: float) -> None:
        """Deadline of every receive call.

        The kernel's own, because Python's reads the clock around each call, and in virtual time
        every reading costs a quarter of a µs.
        """
        whole, part = divmod(round(seconds * 1e6), 1_000_000)
        limit = struct.pack("@ll", whole, part)
        for end in self._sockets:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)

    def _receive(self, end: int) -> tuple[int, bytes] | None:
        try:
            data = self._sockets[end].recv(65535)
        except BlockingIOError:
            return None
        return now_ns(), data

    def _await(self, end: int, number: int) -> int | None:
        """When the probe of that number came, None when it did not; older ones are let pass."""
        while (arrival := self._receive(end)) is not None:
            stamp, data = arrival
            if self._number(data, SMALL_FRAME_BYTES) == number:
                return stamp
        return None

    def _arrivals(
        self, end: int, size_bytes: int, quiet_s: float, last: int
    ) -> Iterator[tuple[int, int | None]]:
        """Stamp and number (None: corrupt) of each frame, until the line stays quiet.

        The stamp is the kernel's at the frame's arrival: the sending loop may still have been
        running then.
        """
        self._wait_at_most(quiet_s)
        offset_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - now_ns()
        while True:
            try:
                data, extras, _, _ = self._sockets[end].recvmsg(65535, _ANCILLARY_BYTES)
            except BlockingIOError:
                return
            seconds, part = struct.unpack("@ll", extras[0][2])
            number = self._number(data, size_bytes)
            if number == last:
                self._wait_at_most(_SLACK_S)
            yield seconds * NS_PER_S + part - offset_ns, number

    def _number(self, data: bytes, size_bytes: int) -> int | None:
        if len(data) != size_bytes:
            return None
        nonce, number = _STAMP.unpack_from(data, 14)
        if nonce != self._nonce or any(data[14 + _STAMP.size :]):
            return None
        return int(number)


def train_frames(plan: LinkPlan) -> int:
    """How many full frames show the line rate: past the jitter of the first half."""
    frame_ns = max(1, wire_time_ns(plan.mtu + 14, plan.rate_bps))
    wanted = 64 + 4 * plan.jitter_ns // frame_ns
    return min(wanted, max(16, plan.forward.limit_packets // 2))


def _one_way_bound_s(plan: LinkPlan, size_bytes: int) -> float:
    wire = wire_time_ns(size_bytes, plan.rate_bps)
    return (plan.delay_ns + plan.jitter_ns + wire) * 1.5 / NS_PER_S


def _packet_socket(interface: str) -> socket.socket:
    try:
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    except PermissionError:
        raise LabError("packet sockets need root", "use --clock virtual, or run as root") from None
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    end.bind((interface, ETHERTYPE))
    end.settimeout(None)
    end.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    return end


def _build_frame(to_mac: str, from_mac: str, size_bytes: int) -> bytes:
    logging.getLogger("scapy").setLevel(logging.ERROR)
    from scapy.layers.l2 import Ether
    from scapy.packet import Raw

    body = Raw(bytes(size_bytes - 14))
    return bytes(Ether(dst=to_mac, src=from_mac, type=ETHERTYPE) / body)
