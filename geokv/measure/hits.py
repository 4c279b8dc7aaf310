"""Which tier served how much of an arm's prompts, and how fast."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from geokv.measure.percentile import percentile
from geokv.measure.records import Request
from geokv.scenario.expect import Tier

TIERS: tuple[Tier, ...] = get_args(Tier)
COMPUTED = "computed"
SOURCES = (*TIERS, COMPUTED)
"""Where a prompt token can come from, the fastest first."""


@dataclass(frozen=True)
class Hits:
    """Of the timed requests of one arm.

    Attributes:
        tokens: prompt tokens by the tier they came from; ``computed`` is the rest.
        requests: by the slowest tier they needed; ``computed`` had nothing cached.
        ttft_ns: median of those requests, where there are any.
    """

    tokens: dict[str, int]
    requests: dict[str, int]
    ttft_ns: dict[str, int]

    def share(self, tier: str) -> float | None:
        """Of all prompt tokens; None without any request."""
        total = sum(self.tokens.values())
        return self.tokens[tier] / total if total else None


def reduce_hits(rows: Iterable[Request], chunk_tokens: int) -> Hits:
    """Count where every prompt token of the timed ``rows`` came from."""
    tokens = dict.fromkeys(SOURCES, 0)
    requests = dict.fromkeys(SOURCES, 0)
    ttft: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if not row.timed or row.ttft_ns is None:
            continue
        for place, count in split(
            row.prompt_tokens,
            row.cached_tokens,
            row.chunks_local,
            row.chunks_disk,
            row.chunks_remote,
            chunk_tokens,
        ).items():
            tokens[place] += count
        source = COMPUTED if row.source == "none" else row.source
        requests[source] += 1
        ttft[source].append(row.ttft_ns)
    return Hits(
        tokens, requests, {source: percentile(times, 0.5) for source, times in ttft.items()}
    )


def split(
    prompt_tokens: int,
    cached_tokens: int,
    chunks_local: int,
    chunks_disk: int,
    chunks_remote: int,
    chunk_tokens: int,
) -> dict[str, int]:
    """``SOURCES`` → tokens of one prompt.

    Args:
        chunks_local: from tiers below the device; ``chunks_disk`` are those of them that came
            up from the disk.
    """
    disk = chunks_disk * chunk_tokens
    dram = chunks_local * chunk_tokens - disk
    remote = chunks_remote * chunk_tokens
    # The first chunk that is brought may lie in part on the device already.
    device = max(0, cached_tokens - disk - dram - remote)
    counts = (device, dram, disk, remote, prompt_tokens - cached_tokens)
    return dict(zip(SOURCES, counts, strict=True))
