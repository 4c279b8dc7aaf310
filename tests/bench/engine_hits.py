"""Hit rate of a batch of requests that form a tree of prefixes, by order of service.

All requests wait at the beginning and the tree is larger than the pool. The best any
order can do is to compute every edge of the tree once, which a depth-first walk reaches
(SGLang, NeurIPS 2024, theorem 3.1). Nothing is computed here: KV is synthetic, which
changes neither blocks nor hits.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence

from engine_line import Line

from geokv.engine import (
    Engine,
    EngineLoop,
    Prompt,
    RealCompute,
    SamplingParams,
    SchedulerSettings,
)
from geokv.engine.order import Candidate, Fcfs, LongestPrefix, Order
from geokv.engine.synthetic import SyntheticModel
from geokv.engine.tiny import TINY

BLOCK = 16
#: Children at each level of the tree, and blocks of tokens on each of their edges.
TREE = ((3, 24), (4, 16), (4, 8), (3, 2))
POOL_SHARE = 0.25
BAR = 0.9


class Shuffled:
    """Any of those that wait, each as likely."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def pick(self, waiting: Sequence[Candidate]) -> int:
        return self._random.randrange(len(waiting))


def measure_hits() -> Iterator[Line]:
    """Each order's hit rate as a share of the optimum's."""
    prompts = _prompts()
    random.Random(1).shuffle(prompts)
    reusable = [tuple(p[: (len(p) - 1) // BLOCK * BLOCK]) for p in prompts]
    edges = len({p[:end] for p in reusable for end in range(BLOCK, len(p) + 1, BLOCK)})
    blocks = sum(len(p) // BLOCK for p in reusable)
    total = sum(map(len, prompts))
    best = BLOCK * (blocks - edges) / total
    for name, order, at_once, bar in (
        ("longest prefix first", LongestPrefix(len(prompts)), 1, BAR),
        ("longest prefix first, 4 at once", LongestPrefix(len(prompts)), 4, None),
        ("first come", Fcfs(), 1, None),
        ("random", Shuffled(), 1, None),
    ):
        hits = asyncio.run(_serve(prompts, round(POOL_SHARE * edges), order, at_once)) / total
        yield Line(
            f"hit rate of {len(prompts)} requests, {name}",
            f"{100 * hits:.1f} %",
            f"best {100 * best:.1f} %",
            hits / best,
            bar,
        )


def _prompts() -> list[list[int]]:
    """One prompt per leaf, each with a last token of its own to compute."""
    draw = random.Random(0)
    paths: list[list[int]] = [[]]
    for children, blocks in TREE:
        paths = [
            path + draw.choices(range(TINY.vocab_size), k=blocks * BLOCK)
            for path in paths
            for _ in range(children)
        ]
    return [[*path, 0] for path in paths]


async def _serve(prompts: list[list[int]], blocks: int, order: Order, at_once: int) -> int:
    """Tokens that were found in the pool."""
    engine = Engine(SyntheticModel(TINY), blocks, RealCompute(), block_tokens=BLOCK)
    loop = EngineLoop(engine, SchedulerSettings(max_running=at_once), order=order)
    requests = [
        loop.submit(Prompt(prompt, b"bench", SamplingParams(max_tokens=1))) for prompt in prompts
    ]
    for request in requests:
        async for _ in request:
            pass
    loop.check_integrity()
    hits = engine.stats().device_hit_tokens
    await loop.aclose()
    await engine.compute.aclose()
    return hits
