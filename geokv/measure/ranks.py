"""Do two samples come from one law? Mann and Whitney's U test (Annals of Mathematical Statistics
18, 1947), which asks nothing of the law's shape: it counts in how many pairs one is the larger.

scipy's: of few samples exact, over all ways to divide them in two, ties as they are (times of a
virtual clock have many); of more the normal approximation with ties and continuity corrected for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

_EXACT_UP_TO = 20_000
"""Ways to divide the samples: eight and eight have 12,870."""


class RankTest(NamedTuple):
    """What the test says.

    Attributes:
        u: pairs in which the first sample's is the larger; ties count half.
        p: two-sided: how often samples of one law would differ as much as these, or more.
        effect: rank-biserial correlation: share of pairs in which the first is larger, less the
            share in which it is smaller; −1 to 1, and 0 where neither tends to be.
    """

    u: float
    p: float
    effect: float


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> RankTest:
    """Compare two samples.

    Raises:
        ValueError: one of them is empty.
    """
    n, m = len(first), len(second)
    if not n or not m:
        raise ValueError("a sample is empty")
    if len({*first, *second}) == 1:
        return RankTest(n * m / 2, 1.0, 0.0)
    from scipy import stats

    method: Any = "asymptotic"
    if math.comb(n + m, n) <= _EXACT_UP_TO:
        # More draws than there are ways to divide: each way is taken once.
        method = stats.PermutationMethod(n_resamples=_EXACT_UP_TO)
    found = stats.mannwhitneyu(first, second, alternative="two-sided", method=method)
    u = float(found.statistic)
    return RankTest(u, float(found.pvalue), 2 * u / (n * m) - 1)


def wholly_apart(p: float | None, n: int, m: int) -> bool:
    """Whether all of one sample lie above all of the other, so that p is as small as it can be.

    Where p is still not small enough for what it is one of many of, that is for want of samples
    and no sign that there is no difference.
    """
    return p is not None and p <= least_p(n, m) * (1 + 1e-9)


def least_p(n: int, m: int) -> float:
    """The smallest p that so many samples can show, all of one above all of the other."""
    return min(1.0, 2 / math.comb(n + m, n))
