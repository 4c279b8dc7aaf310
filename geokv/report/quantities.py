"""What a figure of a sweep can show: how it is called, and where it stands in a summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geokv.report.words import NONE


@dataclass(frozen=True)
class Quantity:
    """One measured thing of a cell.

    Attributes:
        label: with its unit, for axes and tables.
        digits: significant ones.
        expected: how the dashed line beside it is called; empty where nothing is expected.
    """

    label: str
    digits: int = 3
    expected: str = ""


QUANTITIES = {
    "goodput": Quantity("goodput of the fetch, Gb/s", expected="closed form"),
    "fetch": Quantity("fetch, ms", 4, expected="closed form"),
    "ttft": Quantity("TTFT of a remote hit, ms", 4, expected="recomputing"),
    "ttft_p99": Quantity("p99 of the TTFT of a remote hit, ms", 4, expected="recomputing"),
    "ttft_max": Quantity("slowest TTFT of a remote hit, ms", 4, expected="recomputing"),
    "ttft_over_recompute": Quantity("TTFT of a remote hit / of recomputing"),
}
TTFT_KEYS = {"ttft": "ttft_p50_ms", "ttft_p99": "ttft_p99_ms", "ttft_max": "ttft_max_ms"}
"""Those of the time to first token → where it stands in an arm, or in a kind of a drill."""


def value(cell: dict[str, Any], of: str) -> float | None:
    """The quantity in one cell; None in a void one (INV-7)."""
    if "arms" not in cell:
        return _of_kind(cell, of, "cached")
    arm = cell["arms"].get("remote_hit")
    if arm is None or not cell["valid"]:
        return None
    if of in TTFT_KEYS:
        return _number(arm[TTFT_KEYS[of]])
    if of == "ttft_over_recompute":
        return None if cell["gain"] is None else 1 - float(cell["gain"])
    fetching = arm["fetching"] or {}
    return _number(fetching.get("goodput_gbps" if of == "goodput" else "time_ms"))


def expected(cell: dict[str, Any], of: str) -> float | None:
    """What it is held against: a form on paper, or recomputing."""
    if "arms" not in cell:
        return _of_kind(cell, of, "cold") if of in TTFT_KEYS else None
    if of in TTFT_KEYS and cell["valid"] and "recompute" in cell["arms"]:
        return _number(cell["arms"]["recompute"][TTFT_KEYS[of]])
    arm = cell["arms"].get("remote_hit")
    fetching = (arm or {}).get("fetching") or {}
    time_ms = _number(fetching.get("predicted_ms"))
    if not cell["valid"] or not time_ms:
        return None
    if of == "fetch":
        return time_ms
    if of == "goodput":
        return float(fetching["goodput_gbps"]) * float(fetching["time_ms"]) / time_ms
    return None


def _of_kind(cell: dict[str, Any], of: str, kind: str) -> float | None:
    """Of the requests of one kind, where a drill compares kinds."""
    one = cell["kinds"].get(kind)
    if one is None or not cell["valid"]:
        return None
    if of == "ttft_over_recompute":
        beside = _of_kind(cell, "ttft", "cold")
        return one["ttft_p50_ms"] / beside if one["ttft_p50_ms"] and beside else None
    keys = {"goodput": "goodput_gbps", **TTFT_KEYS}
    return _number(one[keys[of]]) if of in keys else None


def shown(number: float | None, of: str) -> str:
    """A number with the quantity's significant digits; a dash where there is none."""
    if number is None:
        return NONE
    digits = QUANTITIES[of].digits
    if abs(number) >= 10**digits:
        return f"{number:,.0f}"
    return f"{number:#.{digits}g}".rstrip(".")


def _number(found: Any) -> float | None:
    return None if found is None else float(found)
