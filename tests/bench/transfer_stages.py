"""Where the time of one GET goes, and what bare sockets take for the same bytes.

Two processes in two network namespaces as in ``transfer.py``. First a pair of blocking
sockets and a pair of asyncio loops without anything else, which exchange as many bytes
as a GET; then geokv with a stamp at each border between our code and the kernel. All
stamps are of one clock, so the stages of a GET add up to its latency. Medians; one kind
of pair after the other in each round. Needs root.

python tests/bench/transfer_stages.py [--size 65536] [--reads 1000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from transfer import HOSTS, namespaces
from transfer_ends import SECRET, GeokvServer, layout_of, ref_of

from geokv.cache import TcpTransport
from geokv.cache.substrate.tcp.channel import Channel
from geokv.clock import now_ns

PORT = 7101
REQUEST_BYTES = 70
FRAME_BYTES = 1257  # in front of the payload: the frame, and in it a header of 256 tokens
WARM_UP = 300
LONGEST_NS = 60 * 10**9
STAGES = (
    ("reader", "submit, until the request is handed to the kernel"),
    ("kernel", "request on its way, server woken"),
    ("server", "request read, chunk found, answer handed to the kernel"),
    ("kernel", "answer on its way, reader woken"),
    ("reader", "frame received and its MAC checked"),
    ("reader", "header checked, payload received"),
    ("reader", "checksums"),
    ("reader", "result set, one turn of the loop, caller goes on"),
)


class StampedSelector(selectors.EpollSelector):
    """Notes when waiting was over for the first time since ``woken_ns`` was cleared."""

    woken_ns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(timeout)
        if ready and not self.woken_ns:
            self.woken_ns = now_ns()
        return ready


class StampedChannel:
    """Notes when something of at least ``least`` bytes was last handed to the kernel."""

    def __init__(self, selector: StampedSelector, least: int) -> None:
        self.pairs: list[tuple[int, int]] = []
        hand_over = Channel._hand_over

        def stamped(channel: Channel, pieces: Any) -> int:
            if sum(map(len, pieces)) >= least:
                self.pairs.append((selector.woken_ns, now_ns()))
            selector.woken_ns = 0
            return hand_over(channel, pieces)

        Channel._hand_over = stamped  # type: ignore[method-assign]


# -- children ----------------------------------------------------------------------


def say(what: Any) -> None:
    print(json.dumps(what), flush=True)


def geokv_server(size: int) -> None:
    """Says its port, then for each chunk it sent: woken, handed over."""
    selector = StampedSelector()
    loop = asyncio.SelectorEventLoop(selector)
    server = GeokvServer(HOSTS[0], [size], loop)
    stamps = StampedChannel(selector, size)
    say(server.info()["ports"][size])

    def end() -> None:
        sys.stdin.read()
        loop.stop()

    loop.add_reader(sys.stdin, end)
    loop.run_forever()
    say(stamps.pairs)


def geokv_reader(size: int, count: int, port: int) -> None:
    """Says of each read: submit, handed over, woken, frame, last byte, verified, end."""
    selector = StampedSelector()
    loop = asyncio.SelectorEventLoop(selector)
    transport = TcpTransport("reader", layout_of(size), SECRET)
    transport.add_peer("server", HOSTS[0], port)
    ref, into = ref_of(size), memoryview(bytearray(size))
    rows = []

    async def read() -> None:
        await transport.connect("server", now_ns() + LONGEST_NS)
        stamps = StampedChannel(selector, 0)
        for _ in range(count):
            start = now_ns()
            one = transport.submit("server", ref, into, start + LONGEST_NS)
            await one.done
            end = now_ns()
            sent, woken = stamps.pairs[-1][1], selector.woken_ns
            rows.append(
                (start, sent, woken, one.first_byte_ns, one.last_byte_ns, one.verified_ns, end)
            )

    loop.run_until_complete(read())
    say(rows)
    loop.run_until_complete(transport.close())


def bare_server(size: int, looped: bool) -> None:
    """Answers every request with a frame and a payload."""
    listener = socket.create_server((HOSTS[0], PORT))
    say(PORT)
    peer, _ = listener.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    pieces = [b"h" * FRAME_BYTES, memoryview(os.urandom(size))]
    if not looped:
        while peer.recv(8192):
            peer.sendmsg(pieces)
        return
    loop = asyncio.new_event_loop()

    def answer() -> None:
        if peer.recv(8192):
            peer.sendmsg(pieces)
        else:
            loop.stop()

    loop.add_reader(peer, answer)
    loop.run_forever()


def bare_reader(size: int, count: int, looped: bool) -> None:
    """Says how long each exchange took."""
    sock = socket.create_connection((HOSTS[0], PORT))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    into = memoryview(bytearray(FRAME_BYTES + size))
    request = b"r" * REQUEST_BYTES
    times = []
    if looped:
        sock.setblocking(False)
        times = asyncio.run(_in_loop(sock, request, into, count))
    for _ in range(0 if looped else count):
        start = now_ns()
        sock.send(request)
        at = 0
        while at < len(into):
            at += sock.recv_into(into[at:])
        times.append(now_ns() - start)
    say(times)


async def _in_loop(sock: socket.socket, request: bytes, into: memoryview, count: int) -> list[int]:
    loop = asyncio.get_running_loop()
    whole: asyncio.Future[None]
    at = 0

    def receive() -> None:
        nonlocal at
        at += sock.recv_into(into[at:])
        if at == len(into):
            at = 0
            whole.set_result(None)

    loop.add_reader(sock, receive)
    times = []
    for _ in range(count):
        start = now_ns()
        whole = loop.create_future()
        sock.send(request)
        await whole
        times.append(now_ns() - start)
    return times


def child(kind: str, size: int, count: int, port: int) -> None:
    engine, side = kind.split("-")
    if engine == "geokv":
        geokv_server(size) if side == "server" else geokv_reader(size, count, port)
    elif side == "server":
        bare_server(size, engine == "loops")
    else:
        bare_reader(size, count, engine == "loops")


# -- parent ------------------------------------------------------------------------


def exchange(engine: str, names: tuple[str, str], size: int, reads: int) -> tuple[Any, Any]:
    """What the server and the reader of one pair say, warm-up included."""
    count = WARM_UP + reads

    def command(side: int, kind: str, port: int) -> list[str]:
        words = [sys.executable, str(Path(__file__)), "--child", f"{engine}-{kind}"]
        words += ["--size", str(size), "--reads", str(count), "--port", str(port)]
        return ["ip", "netns", "exec", names[side], *words]

    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True}
    server = subprocess.Popen(command(0, "server", 0), stdin=subprocess.PIPE, **pipes)
    try:
        assert server.stdout is not None
        port = json.loads(server.stdout.readline())
        ran = subprocess.run(command(1, "reader", port), check=True, timeout=60, **pipes)
        said, _ = server.communicate(timeout=10)
        return json.loads(said) if said else None, json.loads(ran.stdout)
    finally:
        server.kill()
        server.wait(10)


def stages(server: list[list[int]], reader: list[list[int]]) -> list[list[int]]:
    """Of each read after the warm-up the length of every stage in ns."""
    rows = []
    for (heard, answered), (start, sent, *rest) in zip(server, reader, strict=True):
        stamps = [start, sent, heard, answered, *rest]
        rows.append([b - a for a, b in pairwise(stamps)])
    return rows[WARM_UP:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--size", type=int, default=64 * 1024, help="bytes of a chunk")
    parser.add_argument("--reads", type=int, default=1000, help="per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.size, options.reads, options.port)
        return 0
    if os.geteuid():
        print("network namespaces need root")
        return 2
    times: dict[str, list[int]] = {"sockets": [], "loops": [], "geokv": []}
    rows = []
    with namespaces() as names:
        for _ in range(options.rounds):
            for engine in times:
                server, reader = exchange(engine, names, options.size, options.reads)
                if engine == "geokv":
                    rows += stages(server, reader)
                    times[engine] += [sum(row) for row in rows[-options.reads :]]
                else:
                    times[engine] += reader[WARM_UP:]
    print(f"{options.size // 1024} KiB, median µs of {len(rows)} reads each")
    for (who, what), column in zip(STAGES, zip(*rows, strict=True), strict=True):
        print(f"{statistics.median(column) / 1e3:8.1f}  {who:7} {what}")
    for engine, what in (
        ("geokv", "all of it"),
        ("loops", "two asyncio loops that exchange as many bytes"),
        ("sockets", "two blocking sockets that do"),
    ):
        print(f"{statistics.median(times[engine]) / 1e3:8.1f}  {engine:7} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
