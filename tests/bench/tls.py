"""What encryption costs: the same fetches with ``mac`` and with ``tls``, in turns.

    python tests/bench/tls.py [--mib 256] [--rounds 5]

Two processes over loopback, chunks of 4 MiB, one stream and four. Prints goodput and
processor seconds per GiB (both ends) of each, and their ratio within this one run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

from geokv.cache import (
    ChunkLayout,
    ChunkRef,
    DramTier,
    Entry,
    LocalDirectory,
    Lru,
    SharedCache,
    TcpTransport,
    chunk_refs,
    root_key,
)
from geokv.cache.plan import Plan
from geokv.cache.substrate.tcp.handshake import Security
from geokv.cache.substrate.tcp.keyring import deal
from geokv.clock import now_ns
from geokv.units import NS_PER_S

MIB = 2**20
LAYOUT = ChunkLayout(
    model_fingerprint="bench",
    dtype="float32",
    layers=4,
    kv_heads=4,
    head_dim=128,
    block_tokens=16,
    chunk_tokens=256,
    groups=4,
    wire_bytes_per_token=4 * MIB // 256,
)
KINDS: tuple[Security, ...] = ("mac", "tls")


def soon(seconds: float) -> int:
    return now_ns() + round(seconds * NS_PER_S)


def refs(count: int) -> list[ChunkRef]:
    tokens = range(count * LAYOUT.chunk_tokens)
    return chunk_refs(root_key("bench", b"t"), tokens, LAYOUT.chunk_tokens, 16, "t")


def cache(site: str, security: Security, count: int, streams: int) -> SharedCache:
    ring = deal(b"a secret of the bench", ["a", "b"], tls=True)[site]
    transport = TcpTransport(site, LAYOUT, ring, streams=streams, security=security)
    tier = DramTier(LAYOUT, count * LAYOUT.wire_bytes, Lru())
    return SharedCache(site, LAYOUT, tier, LocalDirectory(), transport)


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def serve(security: Security, count: int) -> None:
    site = cache("a", security, count, 1)
    port = await site.start("127.0.0.1", 0, {})
    for ref in refs(count):
        await site.store(ref, lambda view: None, publish=False)
    print(port, flush=True)
    loop = asyncio.get_running_loop()
    while (line := await loop.run_in_executor(None, sys.stdin.readline)).strip():
        print(cpu_s(), flush=True)
    assert line is not None
    await site.close()


class Server:
    """A process that serves, and says how much processor time it has used."""

    def __init__(self, security: Security, count: int) -> None:
        argv = [sys.executable, __file__, "--serve", security, "--mib", str(count * 4)]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
        )
        self.port = int(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def cpu_s(self) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write("cpu\n")
        self.process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        self.process.communicate("\n", timeout=20)


async def fetch(site: SharedCache, count: int) -> float:
    """Seconds for all chunks."""
    wanted = tuple(refs(count))
    plan = Plan(wanted, (("a",),) * count, count, 0)

    async def take(index: int, entry: Entry) -> None:
        return None

    started = time.perf_counter()
    outcome = await site.fetch(plan, soon(60), take)
    took = time.perf_counter() - started
    assert outcome.usable_chunks == count, outcome
    await site.drop()
    return took


async def measure(count: int, rounds: int, streams: int) -> dict[str, dict[str, float]]:
    servers = {kind: Server(kind, count) for kind in KINDS}
    sites = {kind: cache("b", kind, count, streams) for kind in KINDS}
    gib = count * LAYOUT.wire_bytes / 2**30
    took: dict[str, list[float]] = {kind: [] for kind in KINDS}
    spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
    handshakes: dict[str, list[float]] = {kind: [] for kind in KINDS}
    try:
        for kind in KINDS:
            peers = {"a": ("127.0.0.1", servers[kind].port)}
            await sites[kind].start("127.0.0.1", 0, peers)
            await sites[kind].connect(soon(10))
            await fetch(sites[kind], count)
        for round_ in range(rounds):
            for kind in KINDS if round_ % 2 else reversed(KINDS):
                started = time.perf_counter()
                await sites[kind].reconnect(soon(10))
                handshakes[kind].append((time.perf_counter() - started) / (streams + 1))
                before = cpu_s() + servers[kind].cpu_s()
                took[kind].append(await fetch(sites[kind], count))
                spent[kind].append(cpu_s() + servers[kind].cpu_s() - before)
    finally:
        for site in sites.values():
            await site.close()
        for server in servers.values():
            server.close()
    return {
        kind: {
            "gib_s": gib / statistics.median(took[kind]),
            "cpu_s_gib": statistics.median(spent[kind]) / gib,
            "handshake_ms": 1e3 * statistics.median(handshakes[kind]),
        }
        for kind in KINDS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", choices=KINDS)
    args: Any = parser.parse_args()
    count = max(1, args.mib // 4)
    if args.serve:
        asyncio.run(serve(args.serve, count))
        return
    print(f"{'streams':>8} {'':4} {'GiB/s':>7} {'CPU s/GiB':>10} {'handshake ms':>13}")
    for streams in (1, 4):
        found = asyncio.run(measure(count, args.rounds, streams))
        for kind in KINDS:
            row = found[kind]
            print(
                f"{streams:8} {kind:4} {row['gib_s']:7.2f} {row['cpu_s_gib']:10.2f} "
                f"{row['handshake_ms']:13.2f}"
            )
        mac, tls = found["mac"], found["tls"]
        print(
            f"{streams:8} tls/mac: {tls['gib_s'] / mac['gib_s']:.2f} × goodput, "
            f"{tls['cpu_s_gib'] / mac['cpu_s_gib']:.2f} × processor time"
        )


if __name__ == "__main__":
    main()
