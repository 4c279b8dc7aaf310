"""How samples are summed up and rounded, the same way in every gap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geokv.measure.percentile import percentile
from geokv.measure.statistics.carried import least_for_number, tail

_SHARES = {"p95": 0.95, "p99": 0.99}


def spread(samples: Sequence[int], scale: float = 1.0, digits: int = 3) -> dict[str, Any]:
    """``n``, ``mean``, ``p50``, ``p95``, ``p99``, ``max`` of samples over ``scale``.

    A percentile that too few samples carry is None, and ``too_small`` says which and what
    it would need. Without any sample all are None.
    """

    def shown(value: float | None) -> float | None:
        return None if value is None else round(value / scale, digits)

    n = len(samples)
    found: dict[str, Any] = {
        "n": n,
        "mean": shown(sum(samples) / n if n else None),
        "p50": shown(percentile(samples, 0.5) if n else None),
        **{name: shown(tail(samples, share)) for name, share in _SHARES.items()},
        "max": shown(max(samples, default=None)),
    }
    lacking = [
        f"{name} needs {least_for_number(share)}"
        for name, share in _SHARES.items()
        if n < least_for_number(share)
    ]
    if lacking:
        found["too_small"] = f"n too small: {', '.join(lacking)}, n = {n}"
    return found


def share_of(part: float, whole: float, digits: int = 4) -> float | None:
    """``part`` / ``whole``; None of nothing."""
    return round(part / whole, digits) if whole else None


def mean_of(values: Sequence[float], digits: int = 3) -> float | None:
    """None of nothing."""
    return round(sum(values) / len(values), digits) if values else None
