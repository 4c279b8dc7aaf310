"""Which prefix each request of a stream begins with, and who asks; of a stream that compares kinds
of requests, of which kind each is."""

from __future__ import annotations

from typing import NamedTuple

from geokv.coordinator.prompts import StreamPrompts
from geokv.scenario.prompts import stream
from geokv.scenario.workload import Stream

CACHED, ELSEWHERE, COLD = "cached", "cached-elsewhere", "cold"


class Asked(NamedTuple):
    """What a request asks for; see ``schedule.Due``."""

    tenant: int
    prefix: int
    probe: str


def asked(workload: Stream, prompts: StreamPrompts, seed: int) -> list[Asked]:
    """Of every request, in the order they are due."""
    if workload.probe == "other-tenant":
        return _other_tenant(workload, prompts, seed)
    usual = [
        Asked(number % workload.tenants, prompts.number(number), "")
        for number in range(workload.requests)
    ]
    return _half_cold(usual, prompts, seed) if workload.probe == "recompute" else usual


def _half_cold(usual: list[Asked], prompts: StreamPrompts, seed: int) -> list[Asked]:
    """Every request keeps its place and tenant; half of them lose what is cached."""
    shuffled = stream(seed, "probes").permutation(len(usual))
    cold = {int(number): fresh for fresh, number in enumerate(shuffled[: len(usual) // 2])}
    return [
        one._replace(prefix=prompts.prefixes + cold[number], probe=COLD)
        if number in cold
        else one._replace(probe=CACHED)
        for number, one in enumerate(usual)
    ]


def _other_tenant(workload: Stream, prompts: StreamPrompts, seed: int) -> list[Asked]:
    """The first tenant has everything before the second asks for anything, so that the order of
    the second's requests says nothing."""
    own = [Asked(0, prefix, CACHED) for prefix in range(workload.prefixes)]
    probes = [Asked(1, prefix, ELSEWHERE) for prefix in range(workload.prefixes)]
    probes += [Asked(1, prompts.prefixes + n, COLD) for n in range(workload.prefixes)]
    shuffled = stream(seed, "probes").permutation(len(probes))
    return own + [probes[int(place)] for place in shuffled]
