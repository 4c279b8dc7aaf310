"""The sheet of one run: which blocks it has, in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from geokv.measure.drill.story import Story
from geokv.report.sheet import figures
from geokv.report.sheet.blocks import (
    Block,
    Bullets,
    Cards,
    Code,
    Heading,
    Para,
    Sheet,
    Table,
)
from geokv.report.sheet.judged import control, excerpts, invariants, promises
from geokv.report.sheet.setup import setup
from geokv.report.sheet.shown import figure, label_of, shown_ms
from geokv.report.sheet.steps import describe, moment
from geokv.report.sheet.words import Words
from geokv.scenario import Scenario
from geokv.scenario.timeline import read_event

_MOST_FIGURES = 6


def compose(
    summary: dict[str, Any],
    scenario: Scenario,
    told: Sequence[Story],
    words: Words,
) -> Sheet:
    """Everything a sheet says, in one language.

    Args:
        told: the story of each cell (``measure.drill.story``).
    """
    word, said = figures.verdict_words(summary, words)
    names = scenario.translations.get("ja") if words.language == "ja" else None
    title = names.title if names else scenario.title
    question = f"{words.text['goal']}: {names.question if names else scenario.question}"
    blocks: list[Block] = [
        drill_cards(summary, words),
        *_reasons(summary, words),
        Heading(words.text["timeline"]),
        *_figures(summary, told, words, title),
        Heading(words.text["setup"]),
        setup(summary, scenario, words),
        Heading(words.text["steps"]),
        *steps(summary, scenario, words),
        Heading(words.text["expected"]),
        *promises(summary, scenario, words),
        *_recovery(summary, words),
        *sites(summary, words),
        Heading(words.text["invariants"]),
        *invariants(summary, words),
        *excerpts(summary, words),
        Heading(words.text["control"]),
        *control(summary, scenario, told, words, title),
        Heading(words.text["fates"]),
        *fates(summary, words),
        Heading(words.text["repeat"]),
        *_repeat(summary, scenario, words),
        Heading(words.text["notes"]),
        Bullets([*filter(None, [words.text["raw"]]), *summary["warnings"], *summary["notes"]]),
    ]
    versions = summary["provenance"]["versions"]
    footer = f"{summary['scenario']['hash'][:8]} · geokv {versions['geokv']} · " + " ".join(
        f"{name} {version}" for name, version in versions.items() if name != "geokv"
    )
    kicker = f"{words.text['sheet']} · {scenario.name}"
    return Sheet(
        words.language, title, kicker, question, summary["verdict"], word, said, blocks, footer
    )


def drill_cards(summary: dict[str, Any], words: Words) -> Cards:
    """The numbers that matter most, of all cells but the control."""
    cells = figures.normal_cells(summary)
    wrong = figures.wrong(summary)
    hung = figures.count_of(summary, "requests", "unanswered")
    asked = sum(cell["requests"] for cell in cells)
    answered = sum(cell["answered"] for cell in cells)
    fails = figures.control_fails(summary)
    text = words.text
    return Cards(
        [
            (text["answered"], f"{answered} / {asked}", False),
            (text["wrong"], str(wrong), wrong > 0),
            (text["hung"], str(hung), hung > 0),
            (text["worst_ttft"], shown_ms(figures.worst_ttft_ms(summary)), False),
            (text["detected"], shown_ms(figures.detected_ms(summary)), False),
            (text["back_after"], shown_ms(figures.back_after_ms(summary)), False),
            (text["control_column"], figures.control_words(summary, words), fails is False),
        ]
    )


def _reasons(summary: dict[str, Any], words: Words) -> list[Block]:
    if not summary["reasons"]:
        return []
    return [Heading(words.text["reasons"], 3), Bullets(summary["reasons"])]


def _figures(
    summary: dict[str, Any], told: Sequence[Story], words: Words, title: str
) -> list[Block]:
    """Of every normal cell; of many those that are not passed first."""
    by_cell = {story.cell: story for story in told}
    cells = figures.normal_cells(summary)
    chosen = sorted(cells, key=lambda cell: cell["verdict"] == "pass")[:_MOST_FIGURES]
    blocks: list[Block] = []
    for cell in sorted(chosen, key=lambda cell: cell["cell"]):
        if (story := by_cell.get(cell["cell"])) is not None:
            label = label_of(cell, words)
            said = words.text["figure_said"] if not blocks else ""
            if len(cells) > 1:
                blocks.append(Heading(label, 3))
            blocks.append(figure(story, words, f"{title}: {label}", said))
    return blocks


def steps(summary: dict[str, Any], scenario: Scenario, words: Words) -> list[Block]:
    """What was done: planned, and when it was seen to take effect and to heal."""
    text = words.text
    rows: list[list[str]] = []
    marks: list[bool | str | None] = []
    cells = figures.normal_cells(summary)
    for event in scenario.timeline:
        planned = moment(event, words)
        for cell in cells:
            fault = next((one for one in cell["faults"] if one["name"] == event.title), None)
            step = f"{event.title}: {describe(event, words)}"
            if len(cells) > 1:
                step = f"[{label_of(cell, words)}] {step}"
            rows.append([step, planned, *_seen(fault, event.heals, words)])
            marks.append(fault is not None and not fault["problem"])
    for row, mark in _steps_by_hand(cells, words):
        rows.append(row)
        marks.append(mark)
    if not rows:
        return [Para(text["no_timeline"])]
    head = [text[name] for name in ("step", "planned", "took_effect", "healed", "seen_by")]
    return [Table(head, rows, marks)]


def _steps_by_hand(
    cells: Sequence[dict[str, Any]], words: Words
) -> Iterator[tuple[list[str], bool]]:
    for cell in cells:
        for fault in cell["faults"]:
            if not fault.get("by_hand"):
                continue
            done = read_event(fault["by_hand"])
            step = f"{fault['name']}: {describe(done, words, lasting=done.lasts_s is not None)}"
            if len(cells) > 1:
                step = f"[{label_of(cell, words)}] {step}"
            yield [step, words.text["by_hand"], *_seen(fault, True, words)], not fault["problem"]


def _seen(fault: dict[str, Any] | None, heals: bool, words: Words) -> list[str]:
    if fault is None:
        return [words.text["did_not_fire"], words.text["not_there"], words.text["not_there"]]
    took, healed = fault["took_effect_ms"], fault["healed_ms"]
    how = "; ".join(fault["evidence"].values()) or fault["problem"]
    return [
        words.text["did_not_fire"] if took is None else shown_ms(took),
        shown_ms(healed) if heals else words.text["not_there"],
        how,
    ]


def _recovery(summary: dict[str, Any], words: Words) -> list[Block]:
    text = words.text
    cells = figures.normal_cells(summary)
    rows = []
    for cell in cells:
        for fault in cell["faults"]:
            recovery = fault["recovery"]
            if recovery is None:
                continue
            name = fault["name"]
            if len(cells) > 1:
                name = f"[{label_of(cell, words)}] {name}"
            spans = [shown_ms(recovery[span]["ms"]) for span in words.spans]
            rows.append([name, *spans, str(recovery["fetches_lost"])])
    if not rows:
        return []
    head = [f"{name} ({since})" for name, since in words.spans.values()]
    return [
        Heading(text["recovery"], 3),
        Table([text["fault"], *head, text["lost"]], rows, numbers=True),
    ]


def sites(summary: dict[str, Any], words: Words) -> list[Block]:
    """TTFT by the site that was asked: before the first fault, while any lasted, and else. Of a
    long sweep, whose table has it by cell, nothing."""
    text, cells = words.text, figures.normal_cells(summary)
    if len(cells) > _MOST_FIGURES:
        return []
    rows = []
    for cell in cells:
        place = f"[{label_of(cell, words)}] " if len(cells) > 1 else ""
        for one in cell["sites"] if cell["valid"] else []:
            for part in ("before", "during", "after"):
                times = one[part]
                shown = [shown_ms(times[f"ttft_{name}_ms"]) for name in ("p50", "p99", "max")]
                where = place + text[f"site_{part}"].format(site=one["site"])
                rows.append([where, str(times["asked"]), *shown])
    if not rows:
        return []
    head = [text[name] for name in ("site_asked", "asked", "median", "p99", "worst_ttft")]
    return [
        Heading(text["by_site"], 3),
        Para(text["by_site_said"], quiet=True),
        Table(head, rows, numbers=True),
    ]


def fates(summary: dict[str, Any], words: Words) -> list[Block]:
    """One table each of requests, fetches and misses, a column per cell."""
    text, cells = words.text, summary["cells"]
    head = [label_of(cell, words) for cell in cells]
    blocks: list[Block] = []
    for what, title, names in (
        ("requests", text["request_fate"], words.request_fates),
        ("fetches", text["fetch_fate"], words.fetch_fates),
    ):
        rows = [
            [name, *(str(cell["fates"][what][fate]) for cell in cells)]
            for fate, name in names.items()
        ]
        blocks.append(Table([title, *head], rows, numbers=True))
    causes = sorted({cause for cell in cells for cause in cell["misses"]})
    if causes:
        rows = [[cause, *(str(cell["misses"].get(cause, 0)) for cell in cells)] for cause in causes]
        blocks.append(Table([text["miss_cause"], *head], rows, numbers=True))
    return blocks


def _repeat(summary: dict[str, Any], scenario: Scenario, words: Words) -> list[Block]:
    text = words.text
    again = Code(["geokv run ./scenario.yaml"], text["repeat_exact"])
    if summary["provenance"].get("live") or scenario.clock == "wall":
        again = Code(["geokv run ./scenario.yaml"], text["repeat_live"])
    return [
        *([Para(text["repeat_by_hand"])] if summary.get("by_hand") else []),
        again,
        Code([f"geokv drill {scenario.name}"], text["repeat_drill"]),
        Code(["geokv check-history ."], text["repeat_check"]),
        Code([f"geokv drill {scenario.name} --repeat 20 --seed-from 1"], text["repeat_hunt"]),
    ]
