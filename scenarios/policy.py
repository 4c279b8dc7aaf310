"""An eviction policy of one's own, compared with LRU in one run.

A working set is asked for in turn and is larger than the DRAM tier: LRU has always just thrown
away what comes next. Whoever lets the newest go keeps what came first.

    python scenarios/policy.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from geokv import MayGo, Scenario, run


class NewestFirst:
    """``geokv.EvictionPolicy``: what came last goes first."""

    def __init__(self) -> None:
        self._keys: dict[bytes, None] = {}

    def added(self, key: bytes) -> None:
        self._keys[key] = None

    def used(self, key: bytes) -> None:
        return None

    def chained(self, keys: Sequence[bytes]) -> None:
        return None

    def removed(self, key: bytes) -> None:
        del self._keys[key]

    def evict(self, coming: bytes, may_go: MayGo) -> bytes | None:
        victim = next((key for key in reversed(self._keys) if may_go(key)), None)
        if victim is not None:
            del self._keys[victim]
        return victim

    def keys(self) -> Iterator[bytes]:
        return iter(self._keys)


if __name__ == "__main__":
    scenario = (
        Scenario("tiers")
        .with_(name="own_policy", arms=["local-hit"], expect={}, sweep=[], figures=[])
        .with_({"workload.order": "round-robin", "workload.prefixes": 6, "workload.requests": 36})
        .with_({"workload.warmup": 12, "workload.prefix_tokens": 1024, "vm.jobs": 1})
        .with_({"deployment.device_bytes": "256MiB", "deployment.dram_bytes": "512MiB"})
        .sweep("cache.tiers.dram.policy", ["lru", NewestFirst])
    )
    result = run(scenario)
    print(result.table[["cache.tiers.dram.policy", "local_hit_ttft_p50_ms"]])
    asked = result.requests.query("arm == 'local-hit' and not warmup").groupby("cell")
    print(asked["cached_tokens"].sum() / asked["prompt_tokens"].sum(), "of all tokens were here")
