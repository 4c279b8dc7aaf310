"""``table.csv`` of a drill: a row per cell, faults and judged lines as columns."""

from __future__ import annotations

from typing import Any

from geokv.report.csv import shown, text_of
from geokv.report.drill_sweep import sweep_columns
from geokv.report.drill_words import SPANS, TTFTS, wrong_in
from geokv.report.words import other_settings

_CELL = (
    "label", "control", "verdict", "km", "valid", "requests", "answered", "ttft_p50_ms",
    "ttft_p99_ms", "ttft_max_ms", "hit_rate", "bytes",
)  # fmt: skip
_RESULTS = frozenset({*TTFTS, "hit_rate"})
_OK = {True: "pass", False: "fail", None: "unknown"}


def to_drill_csv(summary: dict[str, Any]) -> str:
    """The table as text, one header line, ``\\n`` line ends, empty where there is no number."""
    others = other_settings(summary)
    rows = [_row(cell, others) for cell in summary["cells"]]
    return text_of(rows)


def _row(cell: dict[str, Any], others: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {path: cell["settings"].get(path) for path in others}
    for name in _CELL:
        void = name in _RESULTS and not cell["valid"]
        row[name] = "" if void else shown(cell[name])
    row["wrong"] = wrong_in(cell)
    row.update({name: shown(value) for name, value in sweep_columns(cell).items()})
    for what in ("requests", "fetches"):
        row.update({f"{what}_{fate}": count for fate, count in cell["fates"][what].items()})
    row.update({f"misses_{cause}": count for cause, count in cell["misses"].items()})
    for fault in cell["faults"]:
        row[f"{fault['name']}_took_effect_ms"] = shown(fault["took_effect_ms"])
        row[f"{fault['name']}_healed_ms"] = shown(fault["healed_ms"])
        recovery = fault["recovery"] or {}
        for span in SPANS:
            value = (recovery.get(span) or {}).get("ms")
            row[f"{fault['name']}_{span}_ms"] = shown(value if cell["valid"] else None)
        row[f"{fault['name']}_fetches_lost"] = shown(recovery.get("fetches_lost"))
    row.update({line["name"]: _OK[line["ok"]] for line in cell["lines"]})
    return row
