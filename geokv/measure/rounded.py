"""How numbers of a summary are rounded: once, and the same everywhere. None stays None."""

from __future__ import annotations

from geokv.units import NS_PER_S


def to_ms(value_ns: int | None) -> float | None:
    """Milliseconds to a µs."""
    return None if value_ns is None else round(1000 * value_ns / NS_PER_S, 3)


def to_gbps(value_bps: float | None) -> float | None:
    """Gb/s to four digits."""
    return None if value_bps is None else round(value_bps / 1e9, 4)


def to_percent(share: float | None) -> float | None:
    """Per cent to two digits."""
    return None if share is None else round(100 * share, 2)


def rounded(value: float | None, digits: int) -> float | None:
    """To so many digits after the point."""
    return None if value is None else round(value, digits)


def digits(value: float | None, count: int = 7) -> float | None:
    """To so many significant digits: of what may be of any size."""
    return None if value is None else float(f"{value:.{count}g}")
