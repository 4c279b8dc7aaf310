"""Which TTFTs of a run differ, and which do not, said of each pair that a reader would compare:
the same arm in cells next to each other along an axis, and a remote hit against the other arms. In
a drill that is swept the kinds of requests that it tells apart are what arms are elsewhere.

With one seed the samples are requests, compared by Mann and Whitney's test. With several they are
the medians of the seeds, which saw both sides of a pair, compared by Student's paired test (Georges
and others, "Statistically rigorous Java performance evaluation", OOPSLA 2007, §3). All p of a run
are adjusted together (``many.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, Protocol

from geokv.measure.lines import OfCell, lines_along
from geokv.measure.ranks import least_p, mann_whitney, wholly_apart
from geokv.measure.statistics.many import ALPHA, adjusted
from geokv.measure.statistics.student import of_mean
from geokv.measure.statistics.ttft import Ttft
from geokv.scenario.sweep import Cell

Outcome = Literal["differs", "no significant difference", "too few"]


class Compared(OfCell, Protocol):
    """One point of a sweep, of a measurement run or of a drill."""

    @property
    def valid(self) -> bool:
        """Whether its numbers count (INV-7)."""

    @property
    def ttfts(self) -> Mapping[str, Sequence[Ttft]]:
        """Arm, or kind of request → its times, of each seed that has them."""

    @property
    def against(self) -> Sequence[tuple[str, str]]:
        """Pairs of arms, or of kinds, that are compared within the point."""


@dataclass(frozen=True)
class Difference:
    """Of two medians of the TTFT.

    Attributes:
        cells: the two cells, or the one whose arms are compared.
        arms: the two arms, or the one that is compared in both cells.
        axis: along which the cells are neighbours; empty for arms of one cell.
        samples: on each side: requests, or seeds.
        least_p: the smallest p that so many could have shown.
        p, adjusted: None where that is not below ``ALPHA``.
    """

    cells: tuple[Cell, ...]
    arms: tuple[str, ...]
    axis: str
    samples: tuple[int, int]
    least_p: float
    p: float | None
    adjusted: float | None = None

    @property
    def outcome(self) -> Outcome:
        """What may be said of the pair, at the adjusted p."""
        if self.adjusted is None:
            return "too few"
        if self.adjusted < ALPHA:
            return "differs"
        # With seeds least_p is 0, and nothing is ever as far apart as can be.
        few = self.least_p > 0 and wholly_apart(self.p, *self.samples)
        return "too few" if few else "no significant difference"


def differences(points: Sequence[Compared]) -> list[Difference]:
    """Every pair of a run, axis by axis, then the arms of each cell. Void cells are in none.
    Each p is adjusted for all of them."""
    found = [*_neighbours(points), *_arms(points)]
    values = adjusted([one.p for one in found])
    return [replace(one, adjusted=value) for one, value in zip(found, values, strict=True)]


def _neighbours(points: Sequence[Compared]) -> Iterator[Difference]:
    axes = dict.fromkeys(axis for point in points for axis in point.cell.settings)
    for axis in axes:
        for _, line in lines_along(axis, points):
            sound = [point for point in line if point.valid]
            for one, other in pairwise(sound):
                for arm, times in one.ttfts.items():
                    cells, others = (one.cell, other.cell), other.ttfts.get(arm, ())
                    yield from _compared(cells, (arm,), axis, times, others)


def _arms(points: Sequence[Compared]) -> Iterator[Difference]:
    for point in points:
        for pair in point.against if point.valid else ():
            yield from _compared((point.cell,), pair, "", *(point.ttfts[arm] for arm in pair))


def _compared(
    cells: tuple[Cell, ...],
    arms: tuple[str, ...],
    axis: str,
    first: Sequence[Ttft],
    second: Sequence[Ttft],
) -> Iterator[Difference]:
    """Nothing where a side has no sample."""
    if not first or not second:
        return
    if len(first) == 1:
        one, other = first[0].samples_ns, second[0].samples_ns
        test: Callable[[], float] = lambda: mann_whitney(one, other).p  # noqa: E731
        least = least_p(len(one), len(other)) if one and other else 1.0
    else:
        pairs = zip(first, second, strict=True)
        both = [(a.p50_ns, b.p50_ns) for a, b in pairs if a.p50_ns and b.p50_ns]
        one, other = tuple(a for a, _ in both), tuple(b for _, b in both)
        test, least = lambda: paired_p(one, other), 0.0 if len(both) > 1 else 1.0
    if one and other:
        p = test() if least < ALPHA else None
        yield Difference(cells, arms, axis, (len(one), len(other)), least, p)


def paired_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p of Student's paired test, of two pairs or more; of differences that are all one
    value 1 where that is nothing, else 0: no spread is left that could explain it."""
    found = of_mean([a - b for a, b in zip(first, second, strict=True)])
    assert found is not None, "who has one pair asks for no test"
    return found.p
