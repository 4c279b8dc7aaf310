"""The top of a page: which run this is, what it was to answer, its verdict, what it comes to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from geokv.report import drill_words, words
from geokv.report.plot_panels import single_axis
from geokv.report.sheet import figures
from geokv.report.sheet.blocks import Cards
from geokv.report.sheet.content import drill_cards
from geokv.report.sheet.shown import shown_ms
from geokv.report.sheet.words import words_of

_SAID = {
    "pass": "Everything that this run was to show holds.",
    "fail": "Something that must hold does not.",
    "invalid": "A link was not what it should be, or the machine did not keep up: the numbers of "
    "this run cannot be used.",
    "unknown": "Nothing is broken, but something could not be judged.",
}


@dataclass(frozen=True)
class Head:
    """``facts``: what ran and what it stands for, in a few lines."""

    kicker: str
    title: str
    question: str
    verdict: str
    sign: str
    verdict_said: str
    reasons: list[str]
    headline: str
    """What the run comes to, in a sentence; empty where no single sentence does."""
    cards: Cards
    facts: list[str]
    footer: str


def head(summary: dict[str, Any]) -> Head:
    """What is seen first."""
    scenario, drill = summary["scenario"], summary.get("kind") == "drill"
    word = summary["verdict"]
    said = figures.verdict_words(summary, words_of("en"))[1] if drill else _SAID[word]
    versions = summary["provenance"]["versions"]
    return Head(
        kicker=f"geokv {'drill' if drill else 'run'} · {scenario['name']}",
        title=scenario["title"],
        question=scenario["question"],
        verdict=word,
        sign=words.VERDICT_SIGNS[word],
        verdict_said=said,
        reasons=summary["reasons"],
        headline=_drill_headline(summary) if drill else _headline(summary),
        cards=drill_cards(summary, words_of("en")) if drill else _cards(summary),
        facts=(drill_words if drill else words).header(summary),
        footer=f"scenario {scenario['hash'][:8]} · "
        + " · ".join(f"{name} {version}" for name, version in versions.items()),
    )


def _headline(summary: dict[str, Any]) -> str:
    """Of a run over distance: the farthest cell in range, against recomputing and the bound."""
    cell = _farthest(summary)
    if cell is None:
        return ""
    remote, recompute = cell["arms"]["remote_hit"], cell["arms"]["recompute"]
    less = cell["gain"] >= 0
    text = (
        f"At {cell['km']:g} km a remote hit takes {_ms(remote['ttft_p50_ms'])} to the "
        f"first token, {abs(100 * cell['gain']):.1f} % {'less' if less else 'more'} than "
        f"recomputing ({_ms(recompute['ttft_p50_ms'])})"
    )
    if cell["gain_change_percent"] is not None and cell["km"]:
        text += f"; against 0 km that gain has changed by {cell['gain_change_percent']:.2f} %"
    return text + "."


def _drill_headline(summary: dict[str, Any]) -> str:
    """What users would have seen, and how long it was felt."""
    cells = figures.normal_cells(summary)
    asked = sum(cell["requests"] for cell in cells)
    answered = sum(cell["answered"] for cell in cells)
    wrong = figures.count_of(summary, "requests", "wrong")
    text = f"{answered:,} of {asked:,} requests were answered, {wrong or 'none'} of them wrongly"
    if fetched := figures.count_of(summary, "fetches", "wrong"):
        text += f"; {fetched:,} fetches brought what was wrong"
    faults = [fault["recovery"] for cell in cells for fault in cell["faults"] if fault["recovery"]]
    seen = [ms for fault in faults if (ms := fault["detected"]["ms"]) is not None]
    back = [
        max(found)
        for fault in faults
        if None not in (found := [fault[span]["ms"] for span in ("hit_rate_back", "ttft_back")])
    ]
    if seen:
        text += f"; sites noticed {_of_all(seen, faults)}within {shown_ms(max(seen))}"
    if back:
        text += (
            f"; hits and times were as before {_of_all(back, faults, 'after ')}within "
            f"{shown_ms(max(back))} of healing"
        )
    return text + "."


def _of_all(some: Sequence[float], faults: Sequence[object], word: str = "") -> str:
    """What was not seen to come is not passed over."""
    return "" if len(some) == len(faults) else f"{word}{len(some)} of {len(faults)} faults "


def _farthest(summary: dict[str, Any]) -> dict[str, Any] | None:
    """The farthest valid cell in range that compares fetching with recomputing; none of a run
    whose numbers cannot be used."""
    if not single_axis(summary) or summary["verdict"] == "invalid":
        return None
    cells = [
        cell
        for cell in summary["cells"]
        if cell["valid"] and not cell["out_of_range"] and cell["gain"] is not None
    ]
    return max(cells, key=lambda cell: cell["km"], default=None)


def _cards(summary: dict[str, Any]) -> Cards:
    near = [cell for cell in summary["cells"] if cell["valid"] and not cell["out_of_range"]]
    cells = summary["cells"]
    wrong = sum(cell["wrong"] for cell in cells)
    compared = sum(cell["compared"] for cell in cells)
    void = sum(not cell["valid"] for cell in cells)
    items: list[tuple[str, str, bool]] = []
    if (cell := _farthest(summary)) is not None:
        at = f"at {cell['km']:g} km"
        items += [
            (f"remote hit, {at}", _ms(cell["arms"]["remote_hit"]["ttft_p50_ms"]), False),
            (f"recompute, {at}", _ms(cell["arms"]["recompute"]["ttft_p50_ms"]), False),
            (f"gain, {at}", words.percent(cell["gain"]), cell["gain"] < 0),
        ]
        change = _most(one["gain_change_percent"] for one in near)
        if change is not None and len(near) > 1:
            items.append(("largest change of the gain", f"{change:.2f} %", False))
    ratio = _most(one["arms"].get("remote_hit", {}).get("ratio_to_bound") for one in near)
    if ratio is not None:
        items.append(("worst ratio to the bound", words.ratio(ratio), False))
    items += [
        ("wrong answers", f"{wrong} of {compared}", wrong > 0),
        ("valid cells", f"{len(cells) - void} of {len(cells)}", void > 0),
    ]
    return Cards(items)


def _ms(value: float | None) -> str:
    return f"{words.ms(value)}\u00a0ms"


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
