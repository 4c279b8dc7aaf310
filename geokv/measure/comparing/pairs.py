"""How much slower the first token comes in one run than in another, and whether that is chance.

What is compared is the TTFT of one arm in one cell, as the other run's over the base's. The ratio
that is shown is the one that is tested:

- **Several seeds**: the geometric mean over the seeds of each seed's ratio of medians, with
  Student's interval and test of its logarithm; paired where both runs have the same seeds, else
  Welch's.
- **One seed, the same requests**: request i asked the very same thing in both, so the ratio is the
  geometric mean over the requests of each one's, with Student's interval and paired test of its
  logarithm (a test of ranks cannot come below 2/2^n, which few pairs and many cells make useless).
- **Else** the ratio of the medians, its interval by the bootstrap, each side drawn by itself; the
  test is Mann and Whitney's, and asks whether one side tends to be the larger. That is another
  question, so a direction is told only where both answer.

Requests and seeds are the same only where the workload and the model are, and for drawn questions
the cell's number: two runs that were compared by force may differ in any of them. Every p of a
comparison is adjusted for all of them (``statistics/many.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from geokv.measure.comparing.sampled import Key, Sample, SampledRun
from geokv.measure.percentile import percentile, percentiles
from geokv.measure.ranks import least_p, mann_whitney, wholly_apart
from geokv.measure.statistics.intervals import Stream, resampled
from geokv.measure.statistics.many import ALPHA, adjusted
from geokv.measure.statistics.student import Estimate, of_difference, of_mean

LEAST_FOR_RATIO = 5
"""Requests on each side from which on a ratio of medians has an interval: of five one of 95 % holds
as often as it says (ours, log-normal samples)."""
_LEAST_PAIRS = 3
Unit = Literal["pairs", "requests", "seeds"]
Outcome = Literal["slower", "faster", "no significant difference", "too few", "void", "missing"]


@dataclass(frozen=True)
class Pair:
    """One arm at one point, in two runs; None is what cannot be said.

    Attributes:
        base_ns, other_ns: the medians.
        samples: on each side, of the kind that ``unit`` names.
        ratio: other over base: of the medians where the unit is requests, else the geometric mean
            of what each pair or seed came to.
        low, high: ends of its interval of 95 %.
        why: of ``void`` and ``missing``.
    """

    label: str
    arm: str
    base_ns: int | None
    other_ns: int | None
    unit: Unit = "requests"
    samples: tuple[int, int] = (0, 0)
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    adjusted: float | None = None
    why: str = ""

    @property
    def outcome(self) -> Outcome:
        """A direction only where the p is below ``ALPHA`` and the interval leaves out 1."""
        if self.why:
            return "missing" if self.base_ns is None or self.other_ns is None else "void"
        if self.adjusted is None or self.low is None or self.high is None:
            return "too few"
        if self.adjusted >= ALPHA:
            apart = self.unit == "requests" and wholly_apart(self.p, *self.samples)
            return "too few" if apart else "no significant difference"
        if self.low <= 1 <= self.high:
            return "no significant difference"
        return "slower" if self.low > 1 else "faster"


def compared(base: SampledRun, other: SampledRun) -> list[Pair]:
    """Every arm of every point that one of both has, in the order of the base."""
    keys = list(dict.fromkeys([*base.samples, *other.samples]))
    pairs = [_pair(key, base, other) for key in keys]
    values = adjusted([pair.p for pair in pairs])
    return [replace(pair, adjusted=value) for pair, value in zip(pairs, values, strict=True)]


def _pair(key: Key, base: SampledRun, other: SampledRun) -> Pair:
    one, two = base.samples.get(key), other.samples.get(key)
    shown = one or two
    assert shown is not None, "the key is of one of both"
    medians = [_median(sample) for sample in (one, two)]
    pair = Pair(shown.label, shown.arm, medians[0], medians[1])
    if one is None or two is None or None in medians:
        run, said = (base, "the base") if medians[0] is None else (other, "this run")
        return replace(pair, why=f"{'no answer' if run.has(key) else 'not'} in {said}")
    if void := one.void or two.void:
        return replace(pair, why=void)
    stream = Stream(base.scenario.seed, ("compare", repr(key)))
    if len(one.by_seed) > 1 or len(two.by_seed) > 1:
        return _over_seeds(pair, one, two)
    return _over_requests(pair, one, two, stream)


def _median(sample: Sample | None) -> int | None:
    """Over the seeds the mean of the medians, as tables have it."""
    times = list(sample.by_seed.values()) if sample else []
    if not times or not all(times):
        return None
    return round(sum(percentile(list(one.values()), 0.5) for one in times) / len(times))


def _over_seeds(pair: Pair, one: Sample, two: Sample) -> Pair:
    first, second = (
        {seed: math.log(percentile(list(times.values()), 0.5)) for seed, times in s.by_seed.items()}
        for s in (one, two)
    )
    pair = replace(pair, unit="seeds", samples=(len(first), len(second)))
    if one.asked == two.asked:
        return _estimated(pair, of_mean([second[seed] - first[seed] for seed in first]))
    return _estimated(pair, of_difference(list(first.values()), list(second.values())))


def _over_requests(pair: Pair, one: Sample, two: Sample, stream: Stream) -> Pair:
    (first,), (second,) = one.by_seed.values(), two.by_seed.values()
    common = [name for name in first if name in second]
    if one.asked == two.asked and len(common) >= _LEAST_PAIRS:
        pair = replace(pair, unit="pairs", samples=(len(common), len(common)))
        return _estimated(pair, of_mean([math.log(second[name] / first[name]) for name in common]))
    a, b = list(first.values()), list(second.values())
    pair = replace(pair, samples=(len(a), len(b)), ratio=percentile(b, 0.5) / percentile(a, 0.5))
    # So few could show nothing.
    if least_p(len(a), len(b)) < ALPHA:
        pair = replace(pair, p=mann_whitney(a, b).p)
    if min(len(a), len(b)) < LEAST_FOR_RATIO:
        return pair
    low, high = _ratio_interval(a, b, stream)
    return replace(pair, low=low, high=high)


def _estimated(pair: Pair, log: Estimate | None) -> Pair:
    """With the ratio whose logarithm was estimated; as it is where there is too little for one."""
    if log is None:
        return pair
    low, middle, high = (math.exp(end) for end in (log.low, log.middle, log.high))
    return replace(pair, ratio=middle, low=low, high=high, p=log.p)


def _ratio_interval(
    first: Sequence[int], second: Sequence[int], stream: Stream
) -> tuple[float, float]:
    if len(set(first)) == len(set(second)) == 1:
        one = second[0] / first[0]
        return one, one

    def ratio(a: Any, b: Any, axis: int = -1) -> Any:
        return percentiles(b, 0.5, axis) / percentiles(a, 0.5, axis)

    return resampled((first, second), ratio, stream, "percentile")
