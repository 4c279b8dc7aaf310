"""Hit rates and bytes of the tiers' policies on public traces, keys only.

python tests/bench/tiers.py [--traces FOLDER] [--quick]

The eviction policies are the tiers' own (``geokv.cache.lifetime``); around them is a
simulator of one site (``TwoTiers``: DRAM over a lower tier, write policies as
``locality.stack`` has them; a unit test holds it against the real stack) and one of
several sites that share (``Shared``). A block is 512 tokens, every block is one chunk.

Bars (exit code 1 if one is missed):
* LRU's hit rate over capacity equals the published analysis of the traces, ±0.005;
* hot-only writes at least 3 times less to the lower tier (or over the network, if that
  is where it lies) than write-through and costs at most 2 points of hit rate;
* documents that are read once take half of LRU's hits and at most 15 % of S3-FIFO's;
* where only recency counts the two are within 2 points.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from geokv.cache.lifetime import POLICIES, EvictionPolicy, make_policy
from geokv.cache.lifetime.policy import MayGo

BLOCK_TOKENS = 512
Request = tuple[int, list[bytes]]

# Token-weighted hit rates of an LRU over the whole file, by capacity in blocks: Mooncake
# FAST'25 traces, requests in file order, every block of a prompt inserted on arrival.
LRU_CURVE = {
    "conversation": {1_000: 0.045, 5_000: 0.114, 10_000: 0.216, 30_000: 0.332, 50_000: 0.362},
    "synthetic": {1_000: 0.086, 5_000: 0.285, 10_000: 0.432, 30_000: 0.636, 50_000: 0.651},
}


def always(key: bytes) -> bool:
    return True


class Level:
    """Keys, a capacity, a policy."""

    def __init__(self, policy: str, capacity: int) -> None:
        self.policy: EvictionPolicy = make_policy(policy, capacity)
        self.capacity = capacity
        self.keys: dict[bytes, None] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self.keys

    def add(self, key: bytes, may_go: MayGo = always) -> bytes | None:
        """Put ``key``; returns who had to go."""
        victim = None
        if len(self.keys) >= self.capacity:
            victim = self.policy.evict(key, may_go)
            assert victim is not None
            del self.keys[victim]
        self.keys[key] = None
        self.policy.added(key)
        return victim

    def chained(self, keys: list[bytes]) -> None:
        self.policy.chained([key for key in keys if key in self.keys])


class TwoTiers:
    """One site: DRAM over a lower tier (``None``: there is none)."""

    def __init__(self, dram: Level, lower: Level | None, write: str = "write-back") -> None:
        self.dram = dram
        self.lower = lower
        self.write = write
        self.written = 0
        self.dram_hits = 0
        self.lower_hits = 0
        self._hot: set[bytes] = set(lower.keys if lower is not None else ())
        self._ghost: OrderedDict[bytes, None] = OrderedDict()
        self._waiting: dict[bytes, None] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self.dram or self._below(key)

    def _below(self, key: bytes) -> bool:
        return self.lower is not None and (key in self.lower or key in self._waiting)

    def request(self, keys: list[bytes]) -> int:
        """Read the longest prefix that is here, then store the rest; length of the prefix."""
        found = next((i for i, key in enumerate(keys) if key not in self), len(keys))
        self.use(keys[:found])
        self.chained(keys[:found])
        for key in keys[found:]:
            if key not in self.dram:
                self.store(key)
        self.chained(keys)
        self._write()  # behind everybody's back
        return found

    def use(self, keys: list[bytes]) -> None:
        held = {key for key in keys if key in self.dram}
        below = [key for key in keys if key not in held]
        self.dram_hits += len(held)
        self.lower_hits += len(below)
        for key in below:
            if self.lower is not None:
                self.lower.policy.used(key)
        for key in below:
            # A prefix that is longer than DRAM pushes out its own head.
            fits = len(keys) <= self.dram.capacity
            self._come(key, (lambda key: key not in held) if fits else always)
        for key in keys:
            if key in held and key in self.dram:
                self.dram.policy.used(key)
            self._became_hot(key)
        if below:
            self._write()  # while the others come up

    def store(self, key: bytes) -> None:
        self._come(key)
        if key in self._ghost:
            del self._ghost[key]
            self._became_hot(key)
        if self.write == "write-through":
            self._down(key)

    def chained(self, keys: list[bytes]) -> None:
        self.dram.chained(keys)
        if self.lower is not None:
            self.lower.chained(keys)

    def _come(self, key: bytes, may_go: MayGo = always) -> None:
        victim = self.dram.add(key, may_go)
        if victim is None:
            return
        if self.write == "write-back":
            self._down(victim)
        if victim not in self:
            if victim in self._hot:
                self._hot.discard(victim)
            else:
                self._ghost[victim] = None
                if len(self._ghost) > self.dram.capacity:
                    self._ghost.popitem(last=False)

    def _became_hot(self, key: bytes) -> None:
        if key not in self._hot:
            self._hot.add(key)
            if self.write == "hot-only":
                self._down(key)

    def _down(self, key: bytes) -> None:
        if self.lower is not None and not self._below(key):
            self._waiting[key] = None

    def _write(self) -> None:
        while self.lower is not None and self._waiting:
            key = next(iter(self._waiting))
            self.written += 1
            victim = self.lower.add(key)
            del self._waiting[key]
            if victim is not None and victim not in self:
                self._hot.discard(victim)


@dataclass
class Shared:
    """Several sites with DRAM only: what one lacks it fetches from one that published."""

    sites: list[Level]
    publish: str
    fetched: int = 0
    published: dict[bytes, set[int]] = field(default_factory=dict)

    def request(self, at: int, keys: list[bytes]) -> int:
        site = self.sites[at]
        found = 0
        for key in keys:
            if key in site:
                site.policy.used(key)
                self.published.setdefault(key, set()).add(at)
            elif self.published.get(key):
                self.fetched += 1
                self._come(at, key)
                self.published[key].add(at)
            else:
                break
            found += 1
        for key in keys[found:]:
            if key not in site:
                self._come(at, key)
                if self.publish == "all":
                    self.published.setdefault(key, set()).add(at)
        site.chained(keys)
        return found

    def _come(self, at: int, key: bytes) -> None:
        victim = self.sites[at].add(key)
        if victim is not None:
            self.published.get(victim, set()).discard(at)


def load(path: Path) -> list[Request]:
    """(prompt tokens, block keys) of each request."""
    raw = path.read_bytes()
    lines = (gzip.decompress(raw) if path.suffix == ".gz" else raw).splitlines()
    rows = [json.loads(line) for line in lines]
    return [(row["input_length"], [i.to_bytes(8, "big") for i in row["hash_ids"]]) for row in rows]


def hit_rate(requests: Iterable[Request], site: TwoTiers) -> float:
    """Share of the prompt tokens that were found; the last block counts its real ones."""
    hit = asked = 0
    for tokens, keys in requests:
        hit += min(tokens, site.request(keys) * BLOCK_TOKENS)
        asked += tokens
    return hit / asked


def with_scans(
    requests: list[Request], every: int, blocks: int, seed: int
) -> Iterator[tuple[bool, Request]]:
    """(is it of the trace, request): after every ``every`` requests a document of
    ``blocks`` blocks that nobody asks for again."""
    rng = random.Random(seed)
    for number, request in enumerate(requests):
        yield True, request
        if number % every == every - 1:
            keys = [b"scan" + rng.randbytes(8) for _ in range(blocks)]
            yield False, (blocks * BLOCK_TOKENS, keys)


class Bars:
    """Counts what is missed."""

    def __init__(self) -> None:
        self.missed = 0

    def hold(self, what: str, held: bool) -> None:
        self.missed += not held
        print(f"  {'ok    ' if held else 'MISSED'} {what}")


def curves(traces: dict[str, list[Request]], bars: Bars) -> None:
    for name, requests in traces.items():
        print(f"\n{name}: token hit rate by capacity in blocks, one tier")
        print(f"  {'blocks':>8}" + "".join(f"{policy:>9}" for policy in POLICIES))
        worst = 0.0
        for capacity, published in LRU_CURVE[name].items():
            rates = {
                policy: hit_rate(requests, TwoTiers(Level(policy, capacity), None))
                for policy in POLICIES
            }
            worst = max(worst, abs(rates["lru"] - published))
            print(f"  {capacity:>8}" + "".join(f"{rate:>9.4f}" for rate in rates.values()))
        bars.hold(f"LRU is within {worst:.4f} (bar 0.005) of the published curve", worst <= 0.005)


def writes(requests: list[Request], sizes: list[tuple[int, int, bool]], bars: Bars) -> None:
    print("\nconversation: what goes to the lower tier, LRU in both")
    print(f"  {'DRAM':>7} {'lower':>7} {'policy':>14} {'hit rate':>9} {'blocks down':>12}")
    for dram, lower, bar in sizes:
        rate, down = {}, {}
        for write in ("write-back", "write-through", "hot-only"):
            site = TwoTiers(Level("lru", dram), Level("lru", lower), write)
            rate[write] = hit_rate(requests, site)
            down[write] = site.written
            print(f"  {dram:>7} {lower:>7} {write:>14} {rate[write]:>9.4f} {down[write]:>12}")
        for other in ("write-through", "write-back"):
            cost = 100 * (rate[other] - rate["hot-only"])
            factor = down[other] / down["hot-only"]
            text = f"hot-only writes 1/{factor:.1f} of {other} for {cost:.2f} points"
            if bar:
                bars.hold(f"{text} (bar 1/3, 2 points)", factor >= 3 and cost <= 2)
            else:
                print(f"         {text}")


def scans(requests: list[Request], bars: Bars) -> None:
    rng = random.Random(1)
    documents = [[rng.randbytes(8) for _ in range(40)] for _ in range(60)]
    popular = [documents[int(60 * rng.random() ** 3)] for _ in range(4_000)]
    loads = [
        ("60 documents, few of them popular", [(40 * 512, keys) for keys in popular], 3_000, 10),
        ("conversation", requests, 10_000, 20),
    ]
    for name, load_, capacity, every in loads:
        print(f"\n{name}, {capacity} blocks: hit rate of its own tokens")
        kept = {}
        for policy in ("lru", "s3fifo"):
            alone, scanned = scanned_hits(load_, policy, capacity, every)
            kept[policy] = scanned / alone
            print(
                f"  {policy:>7}: alone {alone:.4f}, with documents of 2000 blocks that are read "
                f"once, after every {every} requests, {scanned:.4f}"
            )
        text = f"LRU keeps {kept['lru']:.0%} of its hits, S3-FIFO {kept['s3fifo']:.0%}"
        if load_ is requests:
            print(f"         {text}")
        else:
            held = kept["lru"] <= 0.5 and kept["s3fifo"] >= 0.85
            bars.hold(f"{text} (bar ≤ 50 %, ≥ 85 %)", held)


def scanned_hits(
    requests: list[Request], policy: str, capacity: int, every: int
) -> tuple[float, float]:
    """Hit rate of ``requests`` alone, and with scans between them."""
    asked = sum(tokens for tokens, _ in requests)
    alone = hit_rate(requests, TwoTiers(Level(policy, capacity), None))
    site = TwoTiers(Level(policy, capacity), None)
    hit = 0
    for own, (tokens, keys) in with_scans(requests, every, 2_000, 1):
        hit += min(tokens, site.request(keys) * BLOCK_TOKENS) * own
    return alone, hit / asked


def recency(bars: Bars) -> None:
    """Prompts that are asked again soon or never: the stack distance is exponential."""
    rng = random.Random(3)
    recent: OrderedDict[bytes, None] = OrderedDict()
    requests: list[Request] = []
    for fresh in range(60_000):
        if recent and rng.random() < 0.7:
            at = min(int(rng.expovariate(1 / 150)), len(recent) - 1)
            key = next(k for i, k in enumerate(reversed(recent)) if i == at)
            recent.move_to_end(key)
        else:
            key = fresh.to_bytes(8, "big")
            recent[key] = None
            if len(recent) > 2_000:
                recent.popitem(last=False)
        requests.append((BLOCK_TOKENS, [key]))
    lru, s3fifo = (
        hit_rate(requests, TwoTiers(Level(policy, 1_000), None)) for policy in ("lru", "s3fifo")
    )
    print("\npure recency, 1000 blocks")
    bars.hold(
        f"LRU {lru:.4f}, S3-FIFO {s3fifo:.4f} (bar 2 points apart)", abs(lru - s3fifo) <= 0.02
    )


def publishing(requests: list[Request]) -> None:
    print("\nconversation over 4 sites, LRU, no lower tier; at home: a request goes where the")
    print("longest part of its prompt was asked for last (its first block, which all share, aside)")
    print(
        f"  {'DRAM each':>9} {'routing':>8} {'publish':>8} {'hit rate':>9} {'blocks fetched':>15}"
    )
    for capacity in (12_500, 50_000):
        for routing in ("random", "at home"):
            for publish in ("all", "hot"):
                shared = Shared([Level("lru", capacity) for _ in range(4)], publish)
                rate = shared_rate(requests, shared, routing == "at home")
                print(
                    f"  {capacity:>9} {routing:>8} {publish:>8} {rate:>9.4f} {shared.fetched:>15}"
                )


def shared_rate(requests: list[Request], shared: Shared, at_home: bool) -> float:
    """Hit rate over all sites."""
    rng = random.Random(4)
    last: dict[bytes, int] = {}
    hit = asked = 0
    for tokens, keys in requests:
        anywhere = rng.randrange(len(shared.sites))
        known = (last[key] for key in reversed(keys[1:]) if key in last)
        at = next(known, anywhere) if at_home else anywhere
        hit += min(tokens, shared.request(at, keys) * BLOCK_TOKENS)
        asked += tokens
        last.update(dict.fromkeys(keys, at))
    return hit / asked


def main() -> int:
    here = Path(__file__).resolve()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--traces", type=Path, default=here.parents[3] / "shared" / "traces")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, a few seconds")
    options = parser.parse_args()
    folder = options.traces / "mooncake"
    files = {
        "conversation": folder / "conversation_trace.jsonl.gz",
        "synthetic": folder / "synthetic_trace.jsonl",
    }
    missing = [str(path) for path in files.values() if not path.exists()]
    if missing:
        print(f"skipped: {', '.join(missing)} not here; name their folder with --traces")
        return 0
    traces = {name: load(path) for name, path in files.items()}
    bars = Bars()
    recency(bars)
    scans(traces["conversation"], bars)
    if options.quick:
        writes(traces["conversation"], [(50_000, 100_000, True)], bars)
        return 1 if bars.missed else 0
    sizes = [
        (5_000, 100_000, False),
        (10_000, 100_000, False),
        (30_000, 100_000, False),
        (50_000, 100_000, True),
    ]
    writes(traces["conversation"], sizes, bars)
    publishing(traces["conversation"])
    curves(traces, bars)
    return 1 if bars.missed else 0


if __name__ == "__main__":
    sys.exit(main())
