"""Reading the same bytes with geokv, Mooncake and NIXL: goodput, latency, processor time.

Two processes per engine in two network namespaces joined by a veth pair, all in one run,
engines in alternating order, medians. Needs root. Mooncake and NIXL are compared where
their packages are there (``pip install 'geokv[mooncake,nixl]'``); exit code 1 when a bar
is missed or a rival is missing, 2 without root.

python tests/bench/transfer.py [--rounds 5] [--scale 1.0] [--engines geokv,mooncake,nixl]

At 64 KiB we lose to the interpreter: ``transfer_stages.py`` shows where the time goes, and
docs/benchmarks.md why. From 4 MiB on the bytes decide, and ours are touched less often.

Bars, per size: goodput of a GET ≥ 1.0 × either rival for 1 to 64 MiB; processor seconds
per GiB (both ends) not above either; median latency of 64 KiB not above either. geokv
finds its chunk by key, and every byte is authenticated in origin and verified before it
counts; the rivals read raw memory and check nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KIB, MIB = 1024, 1024 * 1024
# Size and reads per round: about half a second of work each.
SIZES = {64 * KIB: 400, MIB: 200, 4 * MIB: 100, 16 * MIB: 25, 64 * MIB: 8}
PACKAGES = {"geokv": "geokv", "mooncake": "mooncake.engine", "nixl": "nixl._api"}
HOSTS = ("10.213.77.1", "10.213.77.2")
ENVIRONMENT = {
    # Else UCX reads the other process's memory directly, whatever lies between them.
    "UCX_TLS": "tcp",
    "OMP_NUM_THREADS": "1",
    "GLOG_minloglevel": "3",
    "NIXL_LOG_LEVEL": "ERROR",
    "UCX_LOG_LEVEL": "error",
}


@contextmanager
def namespaces() -> Iterator[tuple[str, str]]:
    """Two namespaces, one veth pair, gone afterwards."""
    names = (f"geokv-bench-{os.getpid()}-a", f"geokv-bench-{os.getpid()}-b")

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, timeout=10)

    made: list[str] = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        ip("link", "add", "v0", "netns", names[0], "type", "veth", "peer", "v0", "netns", names[1])
        for name, host in zip(names, HOSTS, strict=True):
            ip("-n", name, "address", "add", f"{host}/24", "dev", "v0")
            ip("-n", name, "link", "set", "v0", "mtu", "9000", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in made:
            ip("netns", "delete", name)


class Child:
    """One end of one engine, stopped while others are measured."""

    def __init__(self, engine: str, side: str, namespace: str, host: str, first: Any) -> None:
        ours, theirs = socket.socketpair()
        path = Path(__file__).with_name("transfer_ends.py")
        words = [sys.executable, str(path), engine, side, host, str(theirs.fileno())]
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, *words],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.DEVNULL,
            stderr=None if os.environ.get("BENCH_DEBUG") else subprocess.DEVNULL,
            env=os.environ | ENVIRONMENT,
        )
        theirs.close()
        ours.settimeout(60)
        self._file = ours.makefile("rw", encoding="utf-8")
        self._socket = ours
        self.name = f"{engine} {side}"
        self.info = self.ask(first)

    def ask(self, order: Any) -> Any:
        self._file.write(json.dumps(order) + "\n")
        self._file.flush()
        line = self._file.readline()
        if not line:
            raise RuntimeError(f"{self.name} has died (BENCH_DEBUG=1 shows its output)")
        return json.loads(line)

    def run(self, on: bool) -> None:
        self._process.send_signal(signal.SIGCONT if on else signal.SIGSTOP)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)
        self._socket.close()


@dataclass
class Pair:
    server: Child
    reader: Child
    times_ns: dict[int, list[float]] = field(default_factory=dict)
    cpu_s_per_gib: dict[int, list[float]] = field(default_factory=dict)

    def run(self, on: bool) -> None:
        for child in (self.server, self.reader):
            child.run(on)

    def cpu_s(self) -> float:
        ends = (self.server, self.reader)
        return float(sum(child.ask({"do": "cpu"})["cpu_s"] for child in ends))

    def measure(self, size: int, count: int) -> None:
        self.run(True)
        before = self.cpu_s()
        times = self.reader.ask({"do": "read", "size": size, "count": count})["times"]
        used = self.cpu_s() - before
        self.run(False)
        self.times_ns.setdefault(size, []).append(statistics.median(times))
        self.cpu_s_per_gib.setdefault(size, []).append(used / (size * count) * 2**30)


def start(engine: str, names: tuple[str, str]) -> Pair:
    """Both ends up, every size read once and its bytes compared."""
    server = Child(engine, "server", names[0], HOSTS[0], list(SIZES))
    reader = Child(engine, "reader", names[1], HOSTS[1], server.info)
    pair = Pair(server, reader)
    for size in SIZES:
        reader.ask({"do": "read", "size": size, "count": 5})
        got = reader.ask({"do": "digest", "size": size})["digest"]
        if got != expected(size):
            raise RuntimeError(f"{engine} delivered other bytes than were there ({size})")
    pair.run(False)
    return pair


def expected(size: int) -> str:
    from transfer_ends import content, digest

    return digest(content(size))


def present(engine: str) -> bool:
    try:
        return importlib.util.find_spec(PACKAGES[engine]) is not None
    except ModuleNotFoundError:
        return False


def judge(pairs: dict[str, Pair]) -> list[str]:
    """Print the table; returns the bars that were missed."""
    missed = []
    print(f"{'size':>8} {'engine':>9} {'p50 µs':>9} {'GB/s':>6} {'CPU s/GiB':>10}   theirs / ours")
    for size in SIZES:
        shown = f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"
        mine: dict[str, float] = {}
        for engine, pair in pairs.items():
            p50 = statistics.median(pair.times_ns[size])
            cpu = statistics.median(pair.cpu_s_per_gib[size])
            row = f"{shown:>8} {engine:>9} {p50 / 1e3:9.0f} {size / p50:6.2f} {cpu:10.3f}"
            if engine == "geokv":
                mine = {"p50": p50, "cpu": cpu}
                print(row)
                continue
            speed, thrift = p50 / mine["p50"], cpu / mine["cpu"]
            print(f"{row}   goodput ×{speed:.2f}, CPU ×{thrift:.2f}")
            what = "latency" if size < MIB else "goodput"
            if speed < 1:
                missed.append(f"{what} at {shown}: {speed:.2f} × {engine}")
            if thrift < 1:
                missed.append(f"CPU at {shown}: {1 / thrift:.2f} × that of {engine}")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of reads per round")
    parser.add_argument("--engines", default=",".join(PACKAGES))
    options = parser.parse_args()
    if os.geteuid():
        print("network namespaces need root")
        return 2
    wanted = options.engines.split(",")
    engines = [engine for engine in wanted if present(engine)]
    missing = [engine for engine in wanted if engine not in engines]
    for engine in missing:
        print(f"{engine} is missing: pip install 'geokv[{engine}]'")
    with namespaces() as names:
        pairs: dict[str, Pair] = {}
        try:
            for engine in engines:
                pairs[engine] = start(engine, names)
            for turn in range(options.rounds):
                for size, count in SIZES.items():
                    order = engines if turn % 2 == 0 else engines[::-1]
                    for engine in order:
                        pairs[engine].measure(size, max(3, round(count * options.scale)))
            missed = judge(pairs)
        finally:
            for pair in pairs.values():
                pair.server.close()
                pair.reader.close()
    for line in missed:
        print("missed:", line)
    return int(bool(missed or missing))


if __name__ == "__main__":
    sys.exit(main())
