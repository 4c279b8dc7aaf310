"""How much slower the first token comes in one run than in another, and whether that is chance.

What is compared is the median TTFT of one arm in one cell, as the other run's over the base's:

- **Several seeds**, the same in both: the geometric mean over the seeds of each seed's ratio, with
  Student's interval and paired test of its logarithm.
- **One seed, the same questions**: both runs asked request i the very same thing, so requests are
  drawn in pairs by the bootstrap, and the logarithms of their ratios tested by Student's test (a
  test of ranks cannot come below 2/2^n, which few pairs and many cells make useless).
- **Else** the two are drawn and tested each by itself, by Mann and Whitney's test.

Every p of a comparison is adjusted for all of them, as in ``statistics/differences.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from geokv.measure.comparing.sampled import Key, Sample, SampledRun
from geokv.measure.percentile import percentile, rank
from geokv.measure.ranks import least_p, mann_whitney, wholly_apart
from geokv.measure.statistics.carried import CONFIDENCE
from geokv.measure.statistics.differences import ALPHA, paired_p
from geokv.measure.statistics.intervals import Stream, resampled

LEAST_FOR_RATIO = 5
"""Requests on each side from which on a ratio has an interval: of five one of 95 % holds as often
as it says (ours, log-normal samples, in pairs and not)."""
_LEAST_PAIRS = 3
Unit = Literal["pairs", "requests", "seeds"]
Outcome = Literal["slower", "faster", "no significant difference", "too few", "void", "missing"]


@dataclass(frozen=True)
class Pair:
    """One arm at one point, in two runs; None is what cannot be said.

    Attributes:
        samples: on each side, of the kind that ``unit`` names.
        ratio: of the medians, other over base.
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
        if self.why:
            return "missing" if self.base_ns is None or self.other_ns is None else "void"
        if self.adjusted is None or self.ratio is None:
            return "too few"
        if self.adjusted >= ALPHA:
            apart = self.unit != "pairs" and wholly_apart(self.p, *self.samples)
            return "too few" if apart else "no significant difference"
        return "slower" if self.ratio > 1 else "faster"


def compared(base: SampledRun, other: SampledRun) -> list[Pair]:
    """Every arm of every point that one of both has, in the order of the base."""
    keys = list(dict.fromkeys([*base.samples, *other.samples]))
    pairs = [_pair(key, base, other) for key in keys]
    tested = [pair.p for pair in pairs if pair.p is not None]
    if not tested:
        return pairs
    from scipy import stats

    values = iter(stats.false_discovery_control(tested))
    return [p if p.p is None else replace(p, adjusted=float(next(values))) for p in pairs]


def _pair(key: Key, base: SampledRun, other: SampledRun) -> Pair:
    one, two = base.samples.get(key), other.samples.get(key)
    shown = one or two
    assert shown is not None, "the key is of one of both"
    medians = [_median(sample) for sample in (one, two)]
    pair = Pair(shown.label, shown.arm, medians[0], medians[1])
    if one is None or two is None or None in medians:
        side = base if medians[0] is None else other
        return replace(pair, why=f"no answer in {side.folder}")
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
    logs = [
        {seed: math.log(percentile(list(times.values()), 0.5)) for seed, times in s.by_seed.items()}
        for s in (one, two)
    ]
    pair = replace(pair, unit="seeds", samples=(len(logs[0]), len(logs[1])))
    if logs[0].keys() != logs[1].keys():
        first, second = list(logs[0].values()), list(logs[1].values())
        ratio = math.exp(sum(second) / len(second) - sum(first) / len(first))
        return replace(pair, ratio=ratio, p=_unpaired_p(first, second))
    apart = [logs[1][seed] - logs[0][seed] for seed in logs[0]]
    low, middle, high = _student(apart)
    return replace(
        pair,
        ratio=math.exp(middle),
        low=math.exp(low),
        high=math.exp(high),
        p=paired_p(list(logs[1].values()), [logs[0][seed] for seed in logs[1]]),
    )


def _student(values: Sequence[float]) -> tuple[float, float, float]:
    from scipy import stats

    k, middle = len(values), sum(values) / len(values)
    deviation = (sum((one - middle) ** 2 for one in values) / (k - 1)) ** 0.5
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, k - 1)) * deviation / k**0.5
    return middle - half, middle, middle + half


def _over_requests(pair: Pair, one: Sample, two: Sample, stream: Stream) -> Pair:
    (seed, first), (other_seed, second) = *one.by_seed.items(), *two.by_seed.items()
    common = [name for name in first if name in second]
    paired = seed == other_seed and len(common) >= _LEAST_PAIRS
    a = [first[name] for name in common] if paired else list(first.values())
    b = [second[name] for name in common] if paired else list(second.values())
    ratio = percentile(b, 0.5) / percentile(a, 0.5)
    pair = replace(
        pair,
        unit="pairs" if paired else "requests",
        samples=(len(a), len(b)),
        ratio=ratio,
        p=paired_p([math.log(one) for one in a], [math.log(one) for one in b])
        if paired
        else _unpaired_p(a, b),
    )
    if min(len(a), len(b)) < LEAST_FOR_RATIO:
        return pair
    low, high = _ratio_interval(a, b, paired, stream)
    return replace(pair, low=low, high=high)


def _unpaired_p(first: Sequence[float], second: Sequence[float]) -> float | None:
    """None where so few could show nothing."""
    if least_p(len(first), len(second)) >= ALPHA:
        return None
    return mann_whitney(first, second).p


def _ratio_interval(
    first: Sequence[int], second: Sequence[int], paired: bool, stream: Stream
) -> tuple[float, float]:
    if len({b / a for a, b in zip(first, second, strict=False)}) == 1 and paired:
        one = second[0] / first[0]
        return one, one
    if len(set(first)) == len(set(second)) == 1:
        one = second[0] / first[0]
        return one, one

    def ratio(a: Any, b: Any, axis: int = -1) -> Any:
        return _nearest_rank(b, axis) / _nearest_rank(a, axis)

    return resampled((first, second), ratio, stream, "percentile", paired=paired)


def _nearest_rank(values: Any, axis: int) -> Any:
    place = rank(values.shape[axis], 0.5) - 1
    return np.take(np.partition(values, place, axis=axis), place, axis=axis)
