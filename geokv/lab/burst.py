"""TCP payload rate of one direction of a link, as its receiver sees it.

The sender hands the same pages to the kernel again and again (``sendfile`` from memory) and the
receiver discards them unread (``MSG_TRUNC``), so the figure is the network's and no copy's.
The connection uses Reno, which doubles its window every round trip until the socket buffers are
full: this measures the line, not how carefully Cubic starts on a long one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from dataclasses import dataclass

from geokv.clock import now_ns
from geokv.errors import LabError
from geokv.lab.build import Lab
from geokv.lab.enter import in_netns
from geokv.lab.link_plan import LinkPlan
from geokv.units import NS_PER_S

_PIECE_BYTES = 2**20
_READ_BYTES = 8 * 2**20
_WAKE_BYTES = 128 * 2**10
_TCP_CONGESTION = 13


@dataclass(frozen=True, slots=True)
class Burst:
    """One measured burst.

    Attributes:
        warm_bytes: received before the clock started.
        bytes: received while it ran.
        goodput_bps: payload rate; None when the connection stalled past its deadline.
    """

    warm_bytes: int
    bytes: int
    goodput_bps: float | None


def burst_sizes(plan: LinkPlan) -> tuple[int, int]:
    """Bytes to warm up with, and to measure.

    The first fill the line and its queue: slow start moves about as many bytes as its last
    window. The second are four round trips' worth, within what a check may cost.
    """
    second = plan.rate_bps // 8
    warm = 3 * plan.bdp_bytes + min(2**20, second // 10)
    low = min(4 * 2**20, second // 4)
    high = max(32 * 2**20, plan.bdp_bytes)
    return warm, min(high, max(low, 4 * plan.bdp_bytes))


def measure_burst(lab: Lab, link: str, sender: str) -> Burst:
    """Send a burst from one end of a link to the other.

    Raises:
        LabError: no connection.
    """
    plan = lab.link_plan(link)
    receiver = plan.b if sender == plan.a else plan.a
    warm, measured = burst_sizes(plan)
    ideal_s = (warm + measured) * 8 / plan.payload_rate_bps + 20 * plan.rtt_ns / NS_PER_S
    deadline_s = 5 + 4 * ideal_s
    wake = max(1, min(_WAKE_BYTES, measured // 32))
    with contextlib.ExitStack() as stack:
        out, into = _connect(lab, link, sender, receiver, stack, deadline_s, wake)
        memory = os.memfd_create("burst", os.MFD_CLOEXEC)
        stack.callback(os.close, memory)
        os.pwrite(memory, bytes(_PIECE_BYTES), 0)
        thread = threading.Thread(
            target=_pump, args=(out, memory, warm + measured), name=f"burst-{link}", daemon=True
        )
        thread.start()
        try:
            return _drain(into, warm, measured, deadline_s)
        finally:
            for end in (into, out):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            thread.join(deadline_s)


def _connect(
    lab: Lab,
    link: str,
    sender: str,
    receiver: str,
    stack: contextlib.ExitStack,
    deadline_s: float,
    wake_bytes: int,
) -> tuple[socket.socket, socket.socket]:
    with in_netns(lab.netns(receiver)):
        door = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    with in_netns(lab.netns(sender)):
        out = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    for end in (door, out):
        end.settimeout(deadline_s)
    door.bind((lab.link_address(link, receiver), 0))
    door.listen(1)
    out.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, b"reno")
    out.bind((lab.link_address(link, sender), 0))
    try:
        out.connect(door.getsockname())
        into, _ = door.accept()
    except OSError as error:
        raise LabError(f"links.{link}: no TCP connection ({error})") from None
    stack.enter_context(into)
    into.settimeout(deadline_s)
    into.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wake_bytes)
    return out, into


def _pump(out: socket.socket, memory: int, total: int) -> None:
    out.settimeout(None)
    left = total
    with contextlib.suppress(OSError):  # the receiver hangs up when it has seen enough
        while left > 0:
            left -= os.sendfile(out.fileno(), memory, 0, min(left, _PIECE_BYTES))
        out.shutdown(socket.SHUT_WR)


def _drain(into: socket.socket, warm: int, measured: int, deadline_s: float) -> Burst:
    buffer = bytearray(_READ_BYTES)
    until = now_ns() + round(deadline_s * NS_PER_S)
    got, started_at, started_bytes = 0, 0, 0
    last = warm + measured
    while got < last and now_ns() < until:
        try:
            count = into.recv_into(buffer, 0, socket.MSG_TRUNC)
        except TimeoutError:
            break
        if not count:
            break
        got += count
        if not started_at and got >= warm:
            started_at, started_bytes = now_ns(), got
    ended_at = now_ns()
    if got < last or ended_at <= started_at:
        return Burst(min(got, warm), max(0, got - warm), None)
    moved = got - started_bytes
    return Burst(started_bytes, moved, moved * 8 * NS_PER_S / (ended_at - started_at))
