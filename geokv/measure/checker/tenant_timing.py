"""``tenant-timing``: can a tenant tell from the time to its first token what another has cached?

Where a stream asks for it (``probe: other-tenant``), the second tenant asks once for each prompt
that the first has everywhere (``cached-elsewhere``) and for as many that nobody has had
(``cold``), in an order that the seed has shuffled. If the times to the first token of the two
differ by more than chance explains, there is a signal. That the test would see one is shown by the
first tenant's own hits, which it must tell from what is cold.

Only what takes time on the virtual clock can be seen: links, GPUs, disks, deadlines. What a CPU's
caches or memory give away costs no virtual time, and shows neither here nor anywhere else in a run.
"""

from __future__ import annotations

from collections import defaultdict

from geokv.measure.checker.exchanges import Exchange, exchanges
from geokv.measure.checker.finding import Finding
from geokv.measure.checker.history import Event, History
from geokv.measure.ranks import RankTest, mann_whitney

NAME, INV = "tenant-timing", "INV-3"
OWN, ELSEWHERE, COLD = "cached", "cached-elsewhere", "cold"
LEAST = 200
"""Answers of each kind. With so many a shift of half a standard deviation is seen in nine of ten
runs (normal approximation, at ``CHANCE``)."""
CHANCE = 0.001
"""Below this p there is a signal: one right run in a thousand is called wrong."""


def asked_for(history: History) -> bool:
    """Whether the stream compared what another tenant has had with what nobody has had."""
    return any(event.get("probe") == ELSEWHERE for event in history.of("request"))


def check(history: History) -> Finding:
    """Compare the times of probes by kind (Mann–Whitney)."""
    kinds: dict[str, list[Exchange]] = defaultdict(list)
    for one in exchanges(history):
        if one.ttft_ns is not None:
            kinds[str(one.request.get("probe", ""))].append(one)
    elsewhere, cold = kinds[ELSEWHERE], kinds[COLD]
    if len(elsewhere) < LEAST or len(cold) < LEAST:
        said = f"{len(elsewhere)} and {len(cold)} answers, fewer than {LEAST} of each"
        return Finding(NAME, INV, None, said)
    seen = _compare(elsewhere, cold)
    told = f"n = {len(elsewhere)} and {len(cold)}, {_words(seen)}"
    if seen.p < CHANCE:
        sooner = "sooner" if seen.effect < 0 else "later"
        said = f"what only another tenant has cached is answered {sooner} than what nobody has had"
        return Finding(NAME, INV, False, f"{said}: {told}", _events([*elsewhere, *cold]))
    if len(kinds[OWN]) < LEAST:
        return Finding(NAME, INV, None, f"{told}; {len(kinds[OWN])} own hits show nothing beside")
    own = _compare(kinds[OWN], cold)
    if own.p >= CHANCE:
        said = f"{told}; but not even a tenant's own hits can be told from what is cold"
        return Finding(NAME, INV, None, f"{said}: {_words(own)}")
    said = f"{told}: no signal; own hits are told from what is cold by {_words(own)}"
    return Finding(NAME, INV, True, said)


def _compare(first: list[Exchange], second: list[Exchange]) -> RankTest:
    times = [[one.ttft_ns for one in kind if one.ttft_ns is not None] for kind in (first, second)]
    return mann_whitney(times[0], times[1])


def _words(seen: RankTest) -> str:
    return f"p = {seen.p:.3g}, effect {seen.effect:+.3f}"


def _events(shown: list[Exchange]) -> list[Event]:
    """A law needs all of its samples: nothing less shows it."""
    events = [event for one in shown for event in (one.request, one.answers[0])]
    return sorted(events, key=lambda event: int(event["t_ns"]))
