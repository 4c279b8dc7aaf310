"""Many tests at once: of what is called a difference, a twentieth at most is so by chance.

Benjamini and Hochberg, "Controlling the false discovery rate", JRSS B 57, 1995.
"""

from __future__ import annotations

from collections.abc import Sequence

ALPHA = 0.05
"""Below it, adjusted, a difference is called one."""


def adjusted(found: Sequence[float | None]) -> list[float | None]:
    """Each p adjusted for all of them; None where nothing was tested, which adjusts for nothing."""
    tested = [p for p in found if p is not None]
    if not tested:
        return list(found)
    from scipy import stats

    values = iter(stats.false_discovery_control(tested))
    return [None if p is None else float(next(values)) for p in found]
