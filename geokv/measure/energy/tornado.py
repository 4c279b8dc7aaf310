"""Which constants matter: each at the ends of its range, the others at their value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from geokv.measure.energy.constants import Constants, names

_SEEN = 1e-4
"""What changes a result by a smaller share than this, changes nothing."""


@dataclass(frozen=True)
class Bar:
    """What one constant does to a result."""

    constant: str
    low: float
    value: float
    high: float
    at_low: float
    """The result with the constant at the lower end of its range."""
    at_high: float

    @property
    def swing(self) -> float:
        """How far the ends of the constant's range are apart in the result."""
        return abs(self.at_high - self.at_low)


def tornado(result: Callable[[Constants], float], numbers: Constants) -> list[Bar]:
    """A bar of every constant that has a range and changes the result, widest first."""
    least = _SEEN * abs(result(numbers))
    bars = []
    for name in names():
        one = getattr(numbers, name)
        if one.low == one.high:
            continue
        at_low, at_high = (result(numbers.at(name, end)) for end in (one.low, one.high))
        bar = Bar(name, one.low, one.value, one.high, at_low, at_high)
        if bar.swing > least:
            bars.append(bar)
    return sorted(bars, key=lambda bar: (-bar.swing, bar.constant))


def shown(of: str, cell: int, label: str, value: float, bars: list[Bar]) -> dict[str, Any]:
    """For ``summary.json``: whose joules of which cell, all at their value, and every bar."""
    return {
        "of": of,
        "cell": cell,
        "label": label,
        "value": round(value, 3),
        "bars": [
            {
                "constant": bar.constant,
                "low": bar.low,
                "value": bar.value,
                "high": bar.high,
                "at_low": round(bar.at_low, 3),
                "at_high": round(bar.at_high, 3),
            }
            for bar in bars
        ],
    }
