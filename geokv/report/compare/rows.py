"""A comparison as titles and rows, for every format."""

from __future__ import annotations

import csv
import io
from typing import Any

from geokv.measure.comparing.pairs import Pair
from geokv.measure.rounded import digits, to_ms
from geokv.report import words
from geokv.report.compare.comparison import Against, Comparison

TITLES = [
    "cell",
    "arm",
    "base p50 ms",
    "this p50 ms",
    "ratio",
    "95 % interval",
    "n",
    "p",
    "outcome",
]


def row(pair: Pair) -> list[str]:
    """As ``TITLES``."""
    some = (
        f"{pair.samples[0]}"
        if pair.samples[0] == pair.samples[1]
        else "{} and {}".format(*pair.samples)
    )
    return [
        pair.label,
        pair.arm,
        _ms(pair.base_ns),
        _ms(pair.other_ns),
        words.number(pair.ratio, 4),
        interval(pair),
        f"{some} {pair.unit}" if pair.samples != (0, 0) else words.NONE,
        words.NONE if pair.adjusted is None else f"{pair.adjusted:.2g}",
        f"{pair.outcome}: {pair.why}" if pair.why else pair.outcome,
    ]


def interval(pair: Pair) -> str:
    """The interval of a ratio in words; a dash where there is none."""
    if pair.low is None or pair.high is None:
        return words.NONE
    return f"{pair.low:.4f} – {pair.high:.4f}"


def header(comparison: Comparison) -> list[str]:
    """What is compared, in a few lines."""
    base = comparison.base
    lines = [f"base: {base.folder}"]
    for number, one in enumerate(comparison.others, start=1):
        lines.append(f"run {number}: {one.run.folder}")
        lines += [f"  set-ups differ, compared by force: {found.said}" for found in one.setup]
        lines += [f"  version of {found.said}" for found in one.versions]
    return lines


ABOUT = (
    "Ratio of the TTFT: this over base, above 1 is slower; of pairs and seeds the geometric mean "
    "of what each came to, of requests that of the medians. p: of there being no difference, "
    "adjusted for all lines of a table (Benjamini and Hochberg). Slower or faster is said where p "
    "is below 0.05 and the interval leaves out 1"
)


def to_csv(comparison: Comparison) -> str:
    """A row per arm and cell of each run but the base; ``\\n`` line ends, empty where nothing is
    said."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _columns(), restval="", lineterminator="\n")
    writer.writeheader()
    for one in comparison.others:
        writer.writerows(_line(comparison, one, pair) for pair in one.pairs)
    return out.getvalue()


def _columns() -> list[str]:
    return [
        "base", "run", "forced", "cell", "arm", "base_ttft_p50_ms", "ttft_p50_ms", "ratio",
        "ratio_low", "ratio_high", "samples_base", "samples", "unit", "p", "p_adjusted", "outcome",
    ]  # fmt: skip


def _line(comparison: Comparison, one: Against, pair: Pair) -> dict[str, Any]:
    return {
        "base": comparison.base.folder,
        "run": one.run.folder,
        "forced": "yes" if one.setup else "no",
        "cell": pair.label,
        "arm": pair.arm,
        "base_ttft_p50_ms": _csv_ms(pair.base_ns),
        "ttft_p50_ms": _csv_ms(pair.other_ns),
        "ratio": _six(pair.ratio),
        "ratio_low": _six(pair.low),
        "ratio_high": _six(pair.high),
        "samples_base": pair.samples[0],
        "samples": pair.samples[1],
        "unit": pair.unit,
        "p": _six(pair.p),
        "p_adjusted": _six(pair.adjusted),
        "outcome": pair.outcome,
    }


def _six(value: float | None) -> float | str:
    found = digits(value, 6)
    return "" if found is None else found


def _csv_ms(value_ns: int | None) -> float | str:
    found = to_ms(value_ns)
    return "" if found is None else found


def _ms(value_ns: int | None) -> str:
    return words.NONE if value_ns is None else f"{value_ns / 1e6:.3f}"
