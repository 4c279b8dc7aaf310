"""The numbers of a drill that a table over many drills, and the head of a sheet, show."""

from __future__ import annotations

from typing import Any

from geokv.report.drill_words import wrong_in
from geokv.report.sheet.words import Words


def normal_cells(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """All but the control."""
    return [cell for cell in summary["cells"] if not cell["control"]]


def control_cell(summary: dict[str, Any]) -> dict[str, Any] | None:
    """The cell in which a weakness was planted; None where there is none."""
    return next((cell for cell in summary["cells"] if cell["control"]), None)


def worst_ttft_ms(summary: dict[str, Any]) -> float | None:
    """The longest time to a first token of any answered request of the normal cells."""
    return _most(cell["ttft_max_ms"] for cell in normal_cells(summary) if cell["valid"])


def detected_ms(summary: dict[str, Any]) -> float | None:
    """Of the fault whose first sign took longest."""
    return _most(_spans(summary, "detected"))


def back_after_ms(summary: dict[str, Any]) -> float | None:
    """From healing until hit rate and TTFT were what they had been; of the slowest fault."""
    return _most([*_spans(summary, "hit_rate_back"), *_spans(summary, "ttft_back")])


def control_fails(summary: dict[str, Any]) -> bool | None:
    """Whether the control failed as it must; None when there was none."""
    lines = [r for r in summary["expectations"] if r["name"].startswith("control:")]
    return all(line["ok"] for line in lines) if lines else None


def control_words(summary: dict[str, Any], words: Words) -> str:
    """Whether the control failed as it must, in words; a dash when there was none."""
    key = {True: "control_fails", False: "control_holds", None: "control_off"}
    fails, cell = control_fails(summary), control_cell(summary)
    if fails is False and cell is not None and cell["verdict"] in ("unknown", "invalid"):
        return words.text["control_open"]
    return words.text[key[fails]]


def verdict_words(summary: dict[str, Any], words: Words) -> tuple[str, str]:
    """The verdict and a sentence on it."""
    word = str(summary["verdict"])
    alone = word == "pass" and control_fails(summary) is None
    return words.verdicts["pass-alone" if alone else word]


def count_of(summary: dict[str, Any], what: str, *fates: str) -> int:
    """Requests or fetches of the normal cells with one of these fates."""
    return sum(cell["fates"][what][fate] for cell in normal_cells(summary) for fate in fates)


def wrong(summary: dict[str, Any]) -> int:
    """Requests and fetches of the normal cells that were wrong."""
    return sum(wrong_in(cell) for cell in normal_cells(summary))


def _spans(summary: dict[str, Any], name: str) -> list[float | None]:
    return [
        (fault["recovery"] or {}).get(name, {}).get("ms")
        for cell in normal_cells(summary)
        for fault in cell["faults"]
    ]


def _most(values: Any) -> float | None:
    return max((value for value in values if value is not None), default=None)
