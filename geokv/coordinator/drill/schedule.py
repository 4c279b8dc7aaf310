"""When, where and what a stream asks: all of it known before the drill begins."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from geokv.coordinator.drill.probes import Asked, asked
from geokv.coordinator.prompts import StreamPrompts
from geokv.scenario.prompts import stream
from geokv.scenario.workload import Stream
from geokv.units import NS_PER_S


class Due(NamedTuple):
    """One request.

    Attributes:
        due_ns: after the first one is due.
        tenant: index of who asks.
        prompt: names its text; equal names are equal texts.
        prefix: number of the prefix it begins with; equal numbers are equal texts.
        probe: what the prefix is to whom asks, where a stream compares kinds: ``cached``,
            ``cached-elsewhere`` (only another tenant has had it) or ``cold``; else empty.
    """

    number: int
    due_ns: int
    site: str
    tenant: int
    prompt: str
    prefix: int
    tokens: list[int]
    probe: str = ""


def schedule(workload: Stream, prompts: StreamPrompts, seed: int) -> list[Due]:
    """Every request in the order they are due, the first at 0.

    Times are drawn apart from sites, and both apart from prompts: changing one of them leaves
    the others as they were.
    """
    count = workload.requests
    gaps = np.full(count - 1, 1 / workload.rate)
    if workload.arrivals == "poisson":
        gaps = stream(seed, "arrivals").exponential(1 / workload.rate, count - 1)
    due = np.concatenate(([0.0], np.cumsum(gaps)))
    weights = np.array(list(workload.askers.values()))
    sites = list(workload.askers)
    drawn = stream(seed, "askers").choice(len(sites), size=count, p=weights / weights.sum())

    def one(number: int, what: Asked) -> Due:
        return Due(
            number,
            round(float(due[number]) * NS_PER_S),
            sites[int(drawn[number])],
            what.tenant,
            f"q{number}",
            what.prefix,
            prompts.behind(what.prefix, number),
            what.probe,
        )

    return [one(number, what) for number, what in enumerate(asked(workload, prompts, seed))]
