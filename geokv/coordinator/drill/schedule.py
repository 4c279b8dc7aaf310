"""When, where and what a stream asks: all of it known before the drill begins."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from geokv.coordinator.drill.probes import Asked, asked
from geokv.coordinator.prompts import StreamPrompts, TracePrompts
from geokv.scenario.prompts import stream
from geokv.scenario.workload import Stream, Trace
from geokv.scenario.workload.trace_lines import TraceLine, tenant_numbers
from geokv.units import NS_PER_S


class Due(NamedTuple):
    """One request.

    Attributes:
        due_ns: after the first one is due.
        tenant: index of who asks.
        prompt: names its text; equal names are equal texts.
        prefix: number of the prefix it begins with; equal numbers are equal texts. None where
            only its blocks say what it begins with.
        probe: what the prefix is to whom asks, where a stream compares kinds: ``cached``,
            ``cached-elsewhere`` (only another tenant has had it) or ``cold``; else empty.
        max_tokens: of its answer.
        setup: what is done to sites before it is sent (``setup.do``).
        more: what else the history is to say of it.
    """

    number: int
    due_ns: int
    site: str
    tenant: int
    prompt: str
    prefix: int | None
    tokens: list[int]
    max_tokens: int
    probe: str = ""
    setup: tuple[str, ...] = ()
    more: Mapping[str, Any] = MappingProxyType({})


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
            workload.output_tokens,
            what.probe,
        )

    return [one(number, what) for number, what in enumerate(asked(workload, prompts, seed))]


def trace_schedule(
    workload: Trace, prompts: TracePrompts, seed: int
) -> tuple[list[Due], list[Due]]:
    """Lines that prepare, to be asked one after the other, and the stream in the order it is due,
    its first request at 0.

    Where a line names no site one is drawn for it, or for its session.
    """
    lines = workload.lines
    tenants = tenant_numbers(lines)
    sites = _sites(workload, seed)
    texts: dict[tuple[int, ...], str] = {}

    def one(number: int, due_ns: int) -> Due:
        line, tokens = lines[number], prompts.question(0, number, False)
        most = workload.answer_tokens(line)
        return Due(
            number,
            due_ns,
            sites[number],
            tenants.get(line.tenant or "", 0),
            texts.setdefault((most, *tokens), f"q{number}"),
            None,
            tokens,
            most,
            setup=tuple(line.setup),
            more=_more(line),
        )

    leading = len(workload.leading)
    first = [one(number, 0) for number in range(leading)]
    return first, [one(leading + n, due_ns) for n, due_ns in enumerate(workload.due_ns)]


def _sites(workload: Trace, seed: int) -> list[str]:
    dice = stream(seed, "askers")
    names = list(workload.askers)
    weights = np.array(list(workload.askers.values()))
    of_session: dict[str | int, str] = {}
    found = []
    for line in workload.lines:
        site = line.site
        if site is None and line.session is not None:
            site = of_session.get(line.session)
        if site is None:
            site = names[int(dice.choice(len(names), p=weights / weights.sum()))]
        if line.session is not None:
            of_session.setdefault(line.session, site)
        found.append(site)
    return found


def _more(line: TraceLine) -> dict[str, Any]:
    """What gaps and traces want to know of a line, and no request needs."""
    said: dict[str, Any] = {}
    category = line.category or line.type
    if line.prepares:
        said["category"] = line.group
    elif category is not None:
        said["category"] = category
    if line.session is not None:
        said["session"] = str(line.session)
    if line.warmup:
        said["warmup"] = True
    return said
