"""``table.md``: the table, the judged lines and the fine print, readable as it is."""

from __future__ import annotations

from typing import Any

from geokv.report import words
from geokv.report.answers import answers
from geokv.report.differences import differences_in_full
from geokv.report.grid import wide_table
from geokv.report.pivot import pivots
from geokv.report.sheet.markdown import plain


def to_markdown(summary: dict[str, Any]) -> str:
    """The report of one run as GitHub-flavoured Markdown."""
    scenario = summary["scenario"]
    lines = [f"# {plain(scenario['title'])}", "", f"*{plain(scenario['question'])}*", ""]
    lines += [f"{line}  " for line in words.header(summary)]
    lines += ["", *_table(summary), ""]
    if any(cell["out_of_range"] for cell in summary["cells"]):
        lines += ["\\* out of range: shown for comparison, no limit applies.", ""]
    for pivot in pivots(summary):
        lines += [f"## {plain(pivot.title)}", "", *_numbers(pivot.head, pivot.rows), ""]
    if differ := differences_in_full(summary):
        lines += ["## What differs", "", *(f"- {_cell(said)}" for said in differ), ""]
    lines += _answers(summary)
    lines += [f"## Verdict: {summary['verdict']}", ""]
    lines += [f"- {reason}" for reason in summary["reasons"]]
    lines += [""] if summary["reasons"] else []
    lines += ["| | expectation | |", "| --- | --- | --- |"]
    for item in summary["expectations"]:
        lines.append(f"| {words.MARKS[item['ok']]} | {item['name']} | {_cell(item['said'])} |")
    if summary["warnings"]:
        lines += ["", "## Warnings", "", *(f"- {said}" for said in summary["warnings"])]
    lines += ["", "## Notes", "", *(f"- {said}" for said in summary["notes"])]
    lines += ["", "Constants of the energy proxy:", ""]
    lines += ["| constant | value | range | source |", "| --- | ---: | --- | --- |"]
    for name, data in summary["energy"]["constants"].items():
        lines.append(
            f"| {name} | {data['value']:g} | {data['low']:g}–{data['high']:g} "
            f"| {_cell(data['source'])} |"
        )
    return "\n".join(lines) + "\n"


def _answers(summary: dict[str, Any]) -> list[str]:
    shown = answers(summary)
    if not shown:
        return []
    lines = ["## Answers", "", "| question | recomputed | fetched | controls |"]
    lines += ["| --- | --- | --- | --- |"]
    for one in shown:
        fetched = one.fetched if one.ok else f"**{one.fetched}**"
        cells = (one.question, one.answer, fetched, "<br>".join(one.controls))
        lines.append(_line([_cell(text) for text in cells]))
    return [*lines, ""]


def _table(summary: dict[str, Any]) -> list[str]:
    titles, rows = wide_table(summary)
    marked = []
    for row in rows:
        *rest, valid = (text.replace("*", "\\*") for text in row)
        marked.append([*rest, valid if valid == "yes" else f"**{valid}**"])
    return _numbers(titles, marked)


def _numbers(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table whose columns stand to the right."""
    return [_line(head), "|" + " ---: |" * len(head), *map(_line, rows)]


def _line(texts: list[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
