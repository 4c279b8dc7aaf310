"""The judged lines on a sheet: promises, what must always hold, the control, and the events behind
what is broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geokv.measure.drill.story import Story
from geokv.report.drill_console import event_text
from geokv.report.sheet import figures
from geokv.report.sheet.blocks import Block, Code, Heading, Para, Table
from geokv.report.sheet.shown import figure, label_of
from geokv.report.sheet.steps import percent, seconds
from geokv.report.sheet.words import Words
from geokv.scenario import Scenario
from geokv.scenario.promises import Change

_MOST_EVENTS = 12


def promises(summary: dict[str, Any], scenario: Scenario, words: Words) -> list[Block]:
    """What the drill promises of its own, each with what was seen; empty if that is nothing."""
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
    for number, change in enumerate(scenario.expect.changes):
        limits[f"expect:changes.{number}"] = change
    return limits


def _promise(name: str, limits: dict[str, Any], words: Words) -> str:
    """``expect:cut.first_good_within`` → its sentence with the limit that was promised."""
    path = name.removeprefix("expect:")
    head, _, tail = path.partition(".")
    promise, cause, event = (head, tail, "") if head in words.promises else (tail, "", head)
    limit = limits.get(name)
    if isinstance(limit, Change):
        return _change(limit, words)
    if promise not in words.promises or limit is None:
        return path
    if promise.endswith("_within") or promise == "ttft_p99_at_most":
        shown = seconds(limit)
    elif promise in ("answered", "hit_rate_at_least"):
        shown = percent(limit)
    else:
        shown = str(limit)
    return words.promises[promise].format(name=event, cause=cause, limit=shown)


def _change(change: Change, words: Words) -> str:
    """A promised factor between two cells, as a sentence."""
    text = words.text
    bounds = (("factor_at_least", change.at_least), ("factor_at_most", change.at_most))
    return text["change"].format(
        of=change.of.replace("_", " ").replace("ttft", "TTFT"),
        along=change.along,
        start=change.start,
        end=change.end,
        where="".join(
            text["change_where"].format(axis=axis, value=value)
            for axis, value in change.where.items()
        ),
        limit=", ".join(
            text[name].format(limit=f"{bound:g}") for name, bound in bounds if bound is not None
        ),
    )


def invariants(summary: dict[str, Any], words: Words) -> list[Block]:
    """Every line that is judged in every drill, with what was examined."""
    rows, marks = [], []
    invs = {line["name"]: line["inv"] for cell in summary["cells"] for line in cell["lines"]}
    for one in summary["expectations"]:
        name = one["name"]
        if name.startswith(("expect:", "control:")):
            continue
        shown, meaning = _line_words(name, words)
        if invs.get(name):
            shown += f" ({invs[name]})"
        rows.append([shown, meaning, one["said"]])
        marks.append(one["ok"])
    text = words.text
    return [Table([text["line"], text["meaning"], text["observed"]], rows, list(marks))]


def _line_words(name: str, words: Words) -> tuple[str, str]:
    """Name and promise of a judged line that every drill has."""
    kind, _, fault = name.partition(":")
    title, meaning = words.lines[kind]
    return title.format(name=fault), meaning


def excerpts(summary: dict[str, Any], words: Words) -> list[Block]:
    """Of each line that is broken the fewest events that show it."""
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


def _control_line(name: str, limits: dict[str, Any], words: Words) -> str:
    """What the control had to break."""
    if name.startswith("expect:"):
        return _promise(name, limits, words)
    return _line_words(name, words)[0]


def control(
    summary: dict[str, Any],
    scenario: Scenario,
    told: Sequence[Story],
    words: Words,
    title: str,
) -> list[Block]:
    """What was planted in the control, and whether it broke what it had to."""
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
    limits = _limits(scenario)
    rows = []
    for one in lines:
        name = one["name"].removeprefix("control:")
        line = by_name.get(name, one)
        # Broken without its fault, or on links that were off: why that shows nothing is said.
        how = "control_open" if line["ok"] is False else "control_bad"
        shown = line if one["ok"] or line["ok"] is not False else one
        rows.append(
            [
                _control_line(name, limits, words),
                text["control_ok" if one["ok"] else how],
                shown["said"],
            ]
        )
    head = [text["line"], text["verdict"], text["observed"]]
    blocks.append(Table(head, rows, [one["ok"] for one in lines]))
    for story in told:
        if story.cell == cell["cell"]:
            said = f"{label_of(cell, words)}: {figures.control_words(summary, words)}"
            blocks.append(figure(story, words, f"{title}: {said}", ""))
    for name in control["fails"]:
        line = by_name.get(name)
        if line is not None and line["excerpt"]:
            blocks.append(_events(line, f"{name}: {line['said']}"))
    return blocks
