"""What the statistics of a run come to, in sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from geokv.measure.statistics.differences import Difference
from geokv.measure.statistics.many import ALPHA
from geokv.scenario import Scenario
from geokv.scenario.workload import Document, Stream, Trace

_NAMED = 6
"""Longer lists are cut, and say so."""


def spread_said(clock: str, seeds: Sequence[int]) -> str:
    """Where the spread of a run's numbers comes from."""
    if clock == "wall":
        source = (
            "wall clock: requests of a cell differ by what else the machine did; the spread is "
            "this machine's"
        )
    else:
        source = (
            "virtual clock: the machine has no part in it; requests of a cell differ by what they "
            "ask and by what the ones before left behind"
        )
    if len(seeds) > 1:
        return (
            f"{source}. Numbers are means over the {len(seeds)} seeds, each of which draws other "
            "prompts, weights and losses; intervals are Student's over them"
        )
    return f"{source}. One seed ({seeds[0]}): nothing is said of other prompts or losses"


def warmup_said(scenario: Scenario) -> str:
    """How many requests are asked before those that count, and why."""
    workload = scenario.workload
    if isinstance(workload, Document):
        return "none: a question that was asked before would be found in the cache"
    if isinstance(workload, Stream):
        return "none: the providers warm the caches, and the runner the connections"
    if isinstance(workload, Trace):
        return "none beside what the trace's own lines warm up"
    if not workload.warmup:
        return "none: the first request of a cell and arm counts like the others"
    return (
        f"{workload.warmup} of each cell and arm, asked and checked before those that are counted: "
        "the first pays for windows, pages and code that later ones find in place"
    )


def carried_said(n: int, least: int, least_for_interval: int) -> str:
    """Whether so many samples carry a 99th percentile."""
    if n < least:
        return f"n = {n} carries no p99: it would be the largest sample; from {least} on it is one"
    if n < least_for_interval:
        return (
            f"n = {n} carries a p99 and no interval of it: that takes {least_for_interval} samples"
        )
    return f"n = {n} carries a p99 with its interval"


def differences_said(found: Sequence[Difference], per_seed: bool) -> list[str]:
    """A sentence per arm and axis, and per pair of arms."""
    few = [one for one in found if one.adjusted is None]
    if found and len(few) == len(found):
        return [f"no TTFT is compared with another: {_too_few(few[0], per_seed)}"]
    groups: dict[tuple[str, ...], list[Difference]] = defaultdict(list)
    for one in found:
        groups[(one.axis, *one.arms)].append(one)
    return [_group(key[0], key[1:], ones, per_seed) for key, ones in groups.items()]


def _group(axis: str, arms: tuple[str, ...], found: list[Difference], per_seed: bool) -> str:
    names = [arm.replace("-", " ") for arm in arms]
    what = f"{names[0]} along {axis}" if axis else f"{names[0]} against {names[1]}"
    tested = [one for one in found if one.adjusted is not None]
    if not tested:
        return f"{what}: not compared, {_too_few(found[0], per_seed)}"
    pairs = "pairs of neighbours" if axis else "cells"
    if len(tested) == 1:
        pairs = "pair of neighbours" if axis else "cell"
    differ = [one for one in tested if one.outcome == "differs"]
    same = [one for one in tested if one.outcome == "no significant difference"]
    apart = [one for one in tested if one.outcome == "too few"]
    if len(differ) == len(tested):
        every = f"all {len(tested)}" if len(tested) > 1 else "the one"
        return f"{what}: TTFT differs in {every} {pairs}"
    parts = []
    if same:
        many = len(same) == len(tested) and len(same) > 1
        count = f"any of {len(same)}" if many else f"{len(same)} of {len(tested)}"
        least = min(one.adjusted or 0.0 for one in same)
        which = f" (p = {least:.2g} or more)" if many else f": {_listed(same)}"
        parts.append(f"no significant difference of TTFT in {count} {pairs}{which}")
    if apart:
        parts.append(
            f"{len(apart)} of {len(tested)} {pairs} lie wholly apart, of which so few requests "
            f"cannot make sure among so many comparisons: {_listed(apart)}"
        )
    return f"{what}: {'; '.join(parts)}"


def _listed(found: Sequence[Difference]) -> str:
    more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return "; ".join(_pair(one) for one in found[:_NAMED]) + more


def _too_few(one: Difference, per_seed: bool) -> str:
    unit = "seeds" if per_seed else "requests"
    return (
        f"{one.samples[0]} and {one.samples[1]} {unit} could show no smaller p than "
        f"{one.least_p:.2g}, which is not below {ALPHA:g}"
    )


def _pair(one: Difference) -> str:
    where = " | ".join(cell.label for cell in one.cells)
    return f"{where} (p = {one.adjusted:.2g})"
