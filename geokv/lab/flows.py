"""The process that makes other people's traffic: ``python -m geokv.lab.flows FD SPEC``.

It starts in a fraction of a second, so it imports nothing of the rest. Each flow has its sockets
in the namespaces of its two ends. TCP is paced by the kernel, UDP by timers of this process:
so many bytes per second of the clock the lab lives by, whatever the host does. Counts are
written to the shared memory ``FD``, three unsigned 64-bit numbers a flow: bytes handed to the
network, bytes taken from it (TCP only), and when the last asked byte came, in ns (0 is not yet).

``ready`` on standard output says that all flows run; they end with standard input.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time
from typing import Any

from geokv.lab.enter import in_netns

COUNT = struct.Struct("=QQQ")

_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK = 1, 29
_SO_MAX_PACING_RATE = 47
_SO_SNDBUFFORCE = 32
_UDP_SEGMENT = 103
_PIECE_BYTES = 2**18
_READ_BYTES = 2**20
_CONNECT_DEADLINE_S = 5.0
_WAKE_UP_NS = 100_000
_MOST_SEGMENTS_BYTES = 65_000
_BUFFER_BYTES = 8 * 2**20
_kept: list[socket.socket] = []


class Counts:
    """One flow's place in the shared memory."""

    def __init__(self, memory: mmap.mmap, number: int) -> None:
        self._memory = memory
        self._at = number * COUNT.size

    def write(self, field: int, value: int) -> None:
        """Field 0 is sent, 1 arrived, 2 the end."""
        struct.pack_into("=Q", self._memory, self._at + 8 * field, value)


def run_udp(flow: dict[str, Any], counts: Counts) -> None:
    """Datagrams at the asked rate on the wire, a few at a time where they follow fast."""
    with in_netns(flow["receiver_netns"]):
        into = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # Bound, full and never read: what comes is dropped there, and nobody is told it was unwanted.
    into.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    into.bind((flow["goal"], 0))
    with in_netns(flow["sender_netns"]):
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
    out.bind((flow["source"], 0))
    out.connect(into.getsockname())
    size, wire = flow["payload_bytes"], flow["frame_bytes"]
    each_ns = wire * 8 * 10**9 / flow["rate_bps"]
    group = max(1, min(_MOST_SEGMENTS_BYTES // size, round(_WAKE_UP_NS / each_ns)))
    if group > 1:
        out.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, size)
    data = bytes(size * group)

    def pump() -> None:
        start_ns, sent = time.monotonic_ns(), 0
        while True:
            # The line was cut, or its queue is full: the time for these has passed all the same.
            with contextlib.suppress(OSError):
                out.send(data)
            sent += group
            counts.write(0, sent * wire)
            left_ns = start_ns + round(sent * each_ns) - time.monotonic_ns()
            if left_ns > 0:
                time.sleep(left_ns / 1e9)

    threading.Thread(target=pump, daemon=True).start()


def run_tcp(flow: dict[str, Any], counts: Counts) -> None:
    """One connection that always has something to send, at the asked rate of payload at most."""
    with in_netns(flow["receiver_netns"]):
        door = socket.create_server((flow["goal"], 0))
    with in_netns(flow["sender_netns"]):
        out = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    out.settimeout(_CONNECT_DEADLINE_S)
    door.settimeout(_CONNECT_DEADLINE_S)
    out.bind((flow["source"], 0))
    out.connect(door.getsockname())
    into, _ = door.accept()
    door.close()
    # What is unsent when this process ends must not go on by itself, but until then it must:
    # a socket that Python forgets is closed.
    _kept.extend((out, into))
    out.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
    if flow["rate_bps"]:
        rate = max(1, round(flow["rate_bps"] / 8))
        out.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("@Q", rate))
    for end in (out, into):
        end.settimeout(None)
    wanted = flow["bytes"] or 2**63
    memory = os.memfd_create("flow", os.MFD_CLOEXEC)
    os.pwrite(memory, bytes(_PIECE_BYTES), 0)

    def pump() -> None:
        sent = 0
        with contextlib.suppress(OSError):  # the receiver gave up: its count says so
            while sent < wanted:
                sent += os.sendfile(out.fileno(), memory, 0, min(_PIECE_BYTES, wanted - sent))
                counts.write(0, sent)

    def drain() -> None:
        buffer, got = bytearray(_READ_BYTES), 0
        with contextlib.suppress(OSError):
            while got < wanted:
                count = into.recv_into(buffer, 0, socket.MSG_TRUNC)
                if not count:
                    return
                got += count
                counts.write(1, got)
            counts.write(2, time.monotonic_ns())

    for work in (drain, pump):
        threading.Thread(target=work, daemon=True).start()


def main() -> None:
    """Run until standard input ends."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(_PR_SET_TIMERSLACK, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    flows = json.loads(sys.argv[2])
    memory = mmap.mmap(int(sys.argv[1]), COUNT.size * len(flows))
    for number, flow in enumerate(flows):
        {"udp": run_udp, "tcp": run_tcp}[flow["kind"]](flow, Counts(memory, number))
    print("ready", flush=True)
    sys.stdin.buffer.read()
    # Not by way of the interpreter's end, which would wait for no thread but may trip over one.
    os._exit(0)


if __name__ == "__main__":
    main()
