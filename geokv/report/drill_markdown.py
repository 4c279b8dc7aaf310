"""``table.md`` of a drill: tables, judged lines with their events, fine print."""

from __future__ import annotations

from typing import Any

from geokv.report import words
from geokv.report.differences import differences_in_full
from geokv.report.drill_console import event_text
from geokv.report.drill_sweep import is_sweep, sweep_rows, sweep_titles
from geokv.report.drill_words import cell_row, cell_titles, fault_rows, fault_titles, header
from geokv.report.pivot import pivots
from geokv.report.sheet.markdown import plain


def to_drill_markdown(summary: dict[str, Any]) -> str:
    """The report of one drill as GitHub-flavoured Markdown."""
    scenario = summary["scenario"]
    lines = [f"# {plain(scenario['title'])}", "", f"*{plain(scenario['question'])}*", ""]
    lines += [f"{line}  " for line in header(summary)]
    if is_sweep(summary):
        lines += ["", *_table(sweep_titles(summary), sweep_rows(summary)), ""]
        for pivot in pivots(summary):
            lines += [f"## {plain(pivot.title)}", "", *_table(pivot.head, pivot.rows), ""]
    else:
        lines += ["", *_table(cell_titles(), [cell_row(cell) for cell in summary["cells"]]), ""]
    if differ := differences_in_full(summary):
        lines += ["## What differs", "", *(f"- {_cell(said)}" for said in differ), ""]
    if rows := fault_rows(summary):
        lines += ["## Faults", "", *_table(fault_titles(), rows), "", *_evidence(summary), ""]
    lines += [f"## Verdict: {summary['verdict']}", ""]
    lines += [f"- {reason}" for reason in summary["reasons"]]
    lines += [""] if summary["reasons"] else []
    lines += ["| | judged | |", "| --- | --- | --- |"]
    for item in summary["expectations"]:
        lines.append(f"| {words.MARKS[item['ok']]} | {item['name']} | {_cell(item['said'])} |")
    lines += _excerpts(summary)
    for title in ("warnings", "notes"):
        if summary[title]:
            lines += ["", f"## {title.title()}", "", *(f"- {said}" for said in summary[title])]
    return "\n".join(lines) + "\n"


def _evidence(summary: dict[str, Any]) -> list[str]:
    """How each fault was seen from outside."""
    return [
        f"- {plain(cell['label'] or '-')}: {fault['name']} {phase.replace('-', ' ')}: {said}"
        for cell in summary["cells"]
        for fault in cell["faults"]
        for phase, said in fault["evidence"].items()
    ]


def _excerpts(summary: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for cell in summary["cells"]:
        for line in cell["lines"]:
            if line["ok"] is False and line["excerpt"]:
                lines += ["", f"### {plain(cell['label'] or '-')}: {line['name']}"]
                lines += ["", line["said"], ""]
                lines += ["```", *(event_text(event) for event in line["excerpt"]), "```"]
    return lines


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [_line(head), "|" + " --- |" * len(head), *map(_line, rows)]


def _line(texts: list[str]) -> str:
    return "| " + " | ".join(_cell(text) for text in texts) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
