"""Do two samples come from one law? Mann and Whitney's U test (Annals of Mathematical Statistics
18, 1947), which asks nothing of the law's shape: it counts in how many pairs one is the larger.

The normal approximation with ties and continuity corrected for, as in Hollander and Wolfe,
Nonparametric Statistical Methods, §4.1; good from some twenty on each side, and times of a virtual
clock have many ties.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


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
    counts = Counter(first) + Counter(second)
    ranks: dict[float, float] = {}
    below = 0
    for value in sorted(counts):
        ranks[value] = below + (counts[value] + 1) / 2
        below += counts[value]
    u = sum(ranks[value] for value in first) - n * (n + 1) / 2
    effect = 2 * u / (n * m) - 1
    whole = n + m
    ties = sum(count**3 - count for count in counts.values())
    variance = n * m / 12 * (whole + 1 - ties / (whole * (whole - 1)))
    if variance <= 0:  # all of them are one value
        return RankTest(u, 1.0, effect)
    distance = max(0.0, abs(u - n * m / 2) - 0.5)
    return RankTest(u, math.erfc(distance / math.sqrt(2 * variance)), effect)
