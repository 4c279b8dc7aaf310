"""Sites with a shared cache, one process each, in the namespaces of a lab.

A test orders them by name over a pipe and waits with a deadline; everything they say to
each other crosses the emulated link.
"""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "cache"))

from cache_sites import SECRET, content, filling, make_layout, make_refs, soon

from geokv import clock
from geokv.cache import (
    CentralDirectory,
    ChunkLayout,
    DramTier,
    Entry,
    Lru,
    SharedCache,
    TcpTransport,
)
from geokv.cache.substrate.tcp import SocketOptions
from geokv.cache.substrate.tcp.keyring import deal
from geokv.clock import now_ns
from geokv.lab.enter import enter_netns

__all__ = ["LARGE", "LAYOUT", "SiteProcess"]

KV_PORT = 7000
SITES = ("a", "b")
LAYOUT: ChunkLayout = make_layout()
# A chunk of 64 KiB travels as one packet, as far as the sender's kernel is concerned; one
# of these does not, and does not fit into a small send buffer either.
LARGE: ChunkLayout = make_layout(wire_bytes_per_token=16384)
_ORDER_S = 60.0


class SiteProcess:
    """A site in its own process.

    Args:
        directory: the site that keeps the table.
        chunks: room of its tier.
        more: keyword arguments of the transport; ``lease_s`` and ``replication`` go to the
            cache, and
            ``send_buffer_bytes`` to its sockets (what fits in there needs no pin).
    """

    def __init__(self, lab, name, directory="b", chunks=64, layout=LAYOUT, **more):
        self.name = name
        more["layout"] = layout
        self._pipe, theirs = multiprocessing.Pipe()
        peers = {other: (lab.address(other), KV_PORT) for other in SITES if other != name}
        context = multiprocessing.get_context("fork")
        self.process = context.Process(
            target=_main,
            args=(lab.netns(name), name, lab.address(name), peers, directory, chunks, more, theirs),
            daemon=True,
        )
        self.process.start()
        theirs.close()
        self.result()

    def order(self, what, *args, **more):
        """Begin something; ``result`` waits for it."""
        self._pipe.send((what, args, more))

    def result(self, seconds=_ORDER_S):
        assert self._pipe.poll(seconds), f"site {self.name} did not answer"
        ok, value = self._pipe.recv()
        assert ok, value
        return value

    def do(self, what, *args, **more):
        self.order(what, *args, **more)
        return self.result()

    def kill(self):
        """kill -9."""
        self.process.kill()
        self.process.join(10)
        self._pipe.close()

    def freeze(self):
        """It keeps its connections and says nothing more."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def close(self):
        if self.process.is_alive():
            self.thaw()
            with contextlib.suppress(OSError):
                self._pipe.send(("end", (), {}))
            self.process.join(10)
            self.kill()


def _main(netns, name, host, peers, directory, chunks, more, pipe):
    enter_netns(netns)
    try:
        asyncio.run(_serve(name, host, peers, directory, chunks, more, pipe))
    except Exception:
        pipe.send((False, traceback.format_exc()))


async def _serve(name, host, peers, directory, chunks, more, pipe):
    lease_s = more.pop("lease_s", 10.0)
    replication = more.pop("replication", None)
    layout = more.pop("layout")
    security = more.get("security", "mac")
    # A cut link is noticed soon, by the kernel too.
    options = SocketOptions(
        send_buffer_bytes=more.pop("send_buffer_bytes", None), user_timeout_s=2.0
    )
    transport = TcpTransport(
        name, layout, deal(SECRET, SITES, tls=security == "tls")[name], options=options, **more
    )
    tier = DramTier(layout, chunks * layout.wire_bytes, Lru())
    events = []
    cache = SharedCache(
        name,
        layout,
        tier,
        CentralDirectory(directory),
        transport,
        events.append,
        lease_s=lease_s,
        directory_s=1.0,
        replication=replication,
    )
    await cache.start(host, KV_PORT, peers)
    orders = _Orders(cache, events)
    pipe.send((True, transport.incarnation))
    loop = asyncio.get_running_loop()
    while True:
        what, args, options_ = await loop.run_in_executor(None, pipe.recv)
        if what == "end":
            break
        try:
            pipe.send((True, await getattr(orders, what)(*args, **options_)))
        except Exception:
            pipe.send((False, traceback.format_exc()))
    await cache.close()


def _even(raw):
    """Every second byte is nothing."""
    return b"".join(bytes((byte, 0)) for byte in raw[::2])


def _fill_even(ref, view):
    view[:] = _even(content(ref, LARGE)[: len(view)])


class _Orders:
    def __init__(self, cache, events):
        self._cache = cache
        self._layout = cache.layout
        self._events = events
        self._turning = None

    async def connect(self, seconds=5.0):
        await self._cache.connect(soon(seconds))

    async def warm(self, n_bytes=1_000_000):
        await self._cache.warm(n_bytes, soon(5))

    async def put(self, count, seed=0, even=False):
        """``even`` chunks get shorter when they are coded."""
        refs = make_refs(self._layout, count, seed)
        for ref in refs:
            fill = partial(_fill_even, ref) if even else filling(ref, self._layout)
            await self._cache.store(ref, fill, publish=False)
        return await self._cache.publish([ref.key for ref in refs])

    async def pull(self, count, seed=0, seconds=5.0, on_the_beat=False, even=False):
        """Look up and fetch; every byte that is handed over is compared.

        ``on_the_beat`` begins at the next whole tenth of a second, as requests of a run do.
        """
        refs = make_refs(self._layout, count, seed)
        wrong = []

        async def take(index: int, entry: Entry) -> None:
            want = content(refs[index], self._layout)
            if bytes(entry.view) != (_even(want) if even else want):
                wrong.append(index)

        if on_the_beat:
            await clock.on_the_beat()
        started, deadline = now_ns(), soon(seconds)
        plan = await self._cache.lookup(refs, deadline)
        outcome = await self._cache.fetch(plan, deadline, take)
        return {
            "planned": len(plan.refs),
            "usable": outcome.usable_chunks,
            "remote": outcome.remote_chunks,
            "misses": dict(plan.misses + outcome.misses),
            "wrong": wrong,
            "took_s": (now_ns() - started) / 1e9,
            "wire_bytes": outcome.wire_bytes,
            "completion_s": (outcome.verified_ns - outcome.last_byte_ns) / 1e9,
        }

    async def pulls(self, times, count, seed=0, seconds=5.0):
        return [await self.pull(count, seed, seconds) for _ in range(times)]

    async def churn(self, seconds):
        """Store other chunks all the time, so that everything unpinned is evicted."""

        async def turn():
            until, seed = soon(seconds), 1000
            while now_ns() < until:
                for ref in make_refs(self._layout, 4, seed):
                    await self._cache.store(ref, filling(ref, self._layout), publish=False)
                seed += 1
                await asyncio.sleep(0.005)

        self._turning = asyncio.create_task(turn())

    async def drop(self):
        return await self._cache.drop(deadline_ns=soon(2))

    async def rest(self, seconds=5.0):
        """Until nothing is under way; then the books must balance."""
        if self._turning is not None:
            await self._turning
        await self._cache.quiesce(soon(seconds))
        self._cache.check_integrity(deep=True)
        return self._cache.tier.stats()

    async def tier(self):
        return self._cache.tier.stats()

    async def stats(self):
        return self._cache.stats()

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)

    async def events(self, op):
        return [event for event in self._events if event["op"] == op]

    async def up(self, site):
        return self._cache.transport.up(site)

    async def time(self):
        return time.monotonic()
