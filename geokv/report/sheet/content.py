"""The sheet of one run: which blocks it has, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geokv.measure.drill.story import Story
from geokv.report.drill_console import event_text
from geokv.report.sheet import figures
from geokv.report.sheet.blocks import (
    Block,
    Bullets,
    Cards,
    Code,
    Figure,
    Heading,
    Para,
    Sheet,
    Table,
)
from geokv.report.sheet.plot import draw_timeline
from geokv.report.sheet.setup import setup
from geokv.report.sheet.steps import describe, moment, percent, seconds
from geokv.report.sheet.words import Words
from geokv.report.words import MARKS
from geokv.scenario import Scenario

_MOST_FIGURES = 6
_MOST_EVENTS = 12


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
    word, said = words.verdicts[summary["verdict"]]
    names = scenario.translations.get("ja") if words.language == "ja" else None
    title = names.title if names else scenario.title
    question = f"{words.text['goal']}: {names.question if names else scenario.question}"
    blocks: list[Block] = [
        _cards(summary, words),
        *_reasons(summary, words),
        Heading(words.text["timeline"]),
        *_figures(summary, told, words, title),
        Heading(words.text["setup"]),
        setup(summary, scenario, words),
        Heading(words.text["steps"]),
        *_steps(summary, scenario, words),
        Heading(words.text["expected"]),
        *_promises(summary, scenario, words),
        *_recovery(summary, words),
        Heading(words.text["invariants"]),
        *_invariants(summary, words),
        *_excerpts(summary, words),
        Heading(words.text["control"]),
        *_control(summary, told, words, title),
        Heading(words.text["fates"]),
        *_fates(summary, words),
        Heading(words.text["repeat"]),
        *_repeat(scenario, words),
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


def shown_ms(value: float | None) -> str:
    """``12.65 ms``, ``1.532 s``, or a dash."""
    if value is None:
        return "–"
    # A number and its unit stay in one line.
    return f"{value:.2f}\u00a0ms" if value < 1000 else f"{value / 1000:.3f}\u00a0s"


def label_of(cell: dict[str, Any], words: Words) -> str:
    """Of a cell, as people call it."""
    if cell["control"]:
        return words.text["control_column"]
    label = str(cell["label"])
    return words.text["as_written"] if label in ("", "as written") else label


def _cards(summary: dict[str, Any], words: Words) -> Cards:
    cells = figures.normal_cells(summary)
    wrong = figures.count_of(summary, "requests", "wrong")
    hung = figures.count_of(summary, "requests", "unanswered")
    asked = sum(cell["requests"] for cell in cells)
    answered = sum(cell["answered"] for cell in cells)
    fails = figures.control_fails(summary)
    control = {True: "control_fails", False: "control_holds", None: "control_off"}[fails]
    text = words.text
    return Cards(
        [
            (text["answered"], f"{answered} / {asked}", False),
            (text["wrong"], str(wrong), wrong > 0),
            (text["hung"], str(hung), hung > 0),
            (text["worst_ttft"], shown_ms(figures.worst_ttft_ms(summary)), False),
            (text["detected"], shown_ms(figures.detected_ms(summary)), False),
            (text["back_after"], shown_ms(figures.back_after_ms(summary)), False),
            (text["control_column"], text[control], fails is False),
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
            blocks.append(_figure(story, words, f"{title}: {label}", said))
    return blocks


def _figure(story: Story, words: Words, title: str, said: str) -> Figure:
    file = f"plots/timeline-{story.cell}.{words.language}.svg"
    return Figure(draw_timeline(story, words, title), file, said)


def _steps(summary: dict[str, Any], scenario: Scenario, words: Words) -> list[Block]:
    text = words.text
    if not scenario.timeline:
        return [Para(text["no_timeline"])]
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
    head = [text[name] for name in ("step", "planned", "took_effect", "healed", "seen_by")]
    return [Table(head, rows, marks)]


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


def _promises(summary: dict[str, Any], scenario: Scenario, words: Words) -> list[Block]:
    lines = [one for one in summary["expectations"] if one["name"].startswith("expect:")]
    if not lines:
        return []
    limits = _limits(scenario)
    rows = [[_promise(one["name"], limits, words), one["said"]] for one in lines]
    return [
        Table([words.text["promise"], words.text["observed"]], rows, [one["ok"] for one in lines])
    ]


def _limits(scenario: Scenario) -> dict[str, Any]:
    """Promise, as its judged line calls it → what was promised."""
    limits: dict[str, Any] = {}
    for event in scenario.timeline:
        for promise, limit in event.expect.model_dump(exclude_none=True).items():
            limits[f"expect:{event.title}.{promise}"] = limit
    promises = scenario.expect.drill
    for promise, limit in (promises.model_dump(exclude_none=True) if promises else {}).items():
        if isinstance(limit, dict):
            limits.update({f"expect:{promise}.{cause}": n for cause, n in limit.items()})
        else:
            limits[f"expect:{promise}"] = limit
    return limits


def _promise(name: str, limits: dict[str, Any], words: Words) -> str:
    """``expect:cut.first_good_within`` → its sentence with the limit that was promised."""
    path = name.removeprefix("expect:")
    head, _, tail = path.partition(".")
    promise, cause, event = (head, tail, "") if head in words.promises else (tail, "", head)
    limit = limits.get(name)
    if promise not in words.promises or limit is None:
        return path
    if promise.endswith("_within") or promise == "ttft_p99_at_most":
        shown = seconds(limit)
    elif promise in ("answered", "hit_rate_at_least"):
        shown = percent(limit)
    else:
        shown = str(limit)
    return words.promises[promise].format(name=event, cause=cause, limit=shown)


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


def _invariants(summary: dict[str, Any], words: Words) -> list[Block]:
    rows, marks = [], []
    invs = {line["name"]: line["inv"] for cell in summary["cells"] for line in cell["lines"]}
    for one in summary["expectations"]:
        name = one["name"]
        if name.startswith(("expect:", "control:")):
            continue
        kind, _, fault = name.partition(":")
        title, meaning = words.lines[kind]
        shown = title.format(name=fault)
        if invs.get(name):
            shown += f" ({invs[name]})"
        rows.append([shown, meaning, one["said"]])
        marks.append(one["ok"])
    text = words.text
    return [Table([text["line"], text["meaning"], text["observed"]], rows, list(marks))]


def _excerpts(summary: dict[str, Any], words: Words) -> list[Block]:
    found: list[Block] = []
    for cell in figures.normal_cells(summary):
        for line in cell["lines"]:
            if line["ok"] is False and line["excerpt"]:
                said = f"{label_of(cell, words)}: {line['name']}: {line['said']}"
                found.append(_events(line, said))
    if not found:
        return []
    text = words.text
    return [Heading(text["excerpts"], 3), Para(text["excerpt_said"], quiet=True), *found]


def _events(line: dict[str, Any], said: str) -> Code:
    events = [event_text(event) for event in line["excerpt"][:_MOST_EVENTS]]
    more = len(line["excerpt"]) - _MOST_EVENTS
    return Code([*events, *([f"… {more}"] if more > 0 else [])], said)


def _control(
    summary: dict[str, Any], told: Sequence[Story], words: Words, title: str
) -> list[Block]:
    control, cell = summary["control"], figures.control_cell(summary)
    text = words.text
    if control is None or cell is None:
        return [Para(text["control_none"])]
    blocks: list[Block] = []
    if control["sabotage"]:
        blocks.append(Para(text["control_planted"].format(sabotage=control["sabotage"])))
    if control["set"]:
        settings = ", ".join(f"{path} = {value}" for path, value in control["set"].items())
        blocks.append(Para(text["control_set"].format(settings=settings)))
    if control["without"]:
        blocks.append(Para(text["control_without"].format(events=", ".join(control["without"]))))
    blocks.append(Para(text["control_said"], quiet=True))
    by_name = {line["name"]: line for line in cell["lines"]}
    lines = [one for one in summary["expectations"] if one["name"].startswith("control:")]
    rows = [
        [
            one["name"].removeprefix("control:"),
            text["control_ok" if one["ok"] else "control_bad"],
            by_name.get(one["name"].removeprefix("control:"), one)["said"],
        ]
        for one in lines
    ]
    head = [text["line"], text["verdict"], text["observed"]]
    blocks.append(Table(head, rows, [one["ok"] for one in lines]))
    for story in told:
        if story.cell == cell["cell"]:
            label = label_of(cell, words)
            blocks.append(_figure(story, words, f"{title}: {label}", ""))
    for name in control["fails"]:
        line = by_name.get(name)
        if line is not None and line["excerpt"]:
            blocks.append(_events(line, f"{name}: {line['said']}"))
    return blocks


def _fates(summary: dict[str, Any], words: Words) -> list[Block]:
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


def _repeat(scenario: Scenario, words: Words) -> list[Block]:
    text = words.text
    return [
        Code(["geokv run ./scenario.yaml"], text["repeat_exact"]),
        Code([f"geokv drill {scenario.name}"], text["repeat_drill"]),
        Code(["geokv check-history ."], text["repeat_check"]),
        Code([f"geokv drill {scenario.name} --repeat 20 --seed-from 1"], text["repeat_hunt"]),
    ]


def mark_of(mark: bool | str | None) -> str:
    """✓, ✗, ? or nothing."""
    return mark if isinstance(mark, str) else MARKS[mark]
