r"""``table.tex``: the table as a LaTeX ``table`` with booktabs, to ``\input`` into a paper."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from geokv.report import drill_words, words
from geokv.report.drill_sweep import is_sweep, sweep_rows, sweep_titles
from geokv.report.grid import Column, wide_columns, wide_table

SIGNS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    # In brackets, at the head of a row, would be an option of the line before it.
    "[": "{[}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
    # What pdfLaTeX has in no text font, and what would be set in another weight.
    "–": "--", "—": "---", "−": "$-$", "×": r"$\times$", "÷": r"$\div$", "·": r"$\cdot$",
    "≤": r"$\le$", "≥": r"$\ge$", "µ": r"\textmu{}", "→": r"$\rightarrow$", "…": r"\dots{}",
    "✓": r"$\checkmark$", "✗": r"$\times$", "°": r"\textdegree{}", "\u00a0": "~", "\n": " ",
    "\u202f": r"\,",
}  # fmt: skip
"""What stands for a sign in LaTeX."""
_LEFT_HEADS = frozenset({"cell", "verdict", "valid"})
_HEAD_SIGNS = 8
"""Words of a head share a line up to here: numbers below are about as wide."""
_ROWS_TO_COMPARE = 2


def to_latex(summary: dict[str, Any]) -> str:
    r"""The table of a run or a drill. It needs ``\usepackage{booktabs}``; with it ``graphicx``,
    since a table wider than the line, or than its column of the page, is shrunk to it.

    What a sweep has the same in every row is said in the caption, not in a column. Out-of-range
    rows are set in italics under a rule of their own; a void cell says so.
    """
    drill = summary.get("kind") == "drill"
    if not drill:
        columns, (_, rows) = wide_columns(summary), wide_table(summary)
    elif is_sweep(summary):
        columns, rows = [Column(title) for title in sweep_titles(summary)], sweep_rows(summary)
    else:
        columns = [Column(title) for title in drill_words.cell_titles()]
        rows = [drill_words.cell_row(cell) for cell in summary["cells"]]
    far = [not drill and cell["out_of_range"] for cell in _cells(summary, rows)]
    alike: list[str] = []
    if not drill or is_sweep(summary):
        columns, rows, alike = _parted(columns, rows)
    scenario = summary["scenario"]
    facts = (drill_words if drill else words).header(summary)
    caption = (
        f"{tex(scenario['title'])}. {tex(' · '.join(facts))}. Verdict: {tex(summary['verdict'])}."
    )
    if alike:
        caption += f" In every row: {tex(', '.join(alike))}."
    if any(far):
        caption += " In italics: out of range, shown for comparison."
    sides = "".join("l" if column.title in _LEFT_HEADS else "r" for column in columns)
    lines = [
        f"% geokv {summary['provenance']['versions']['geokv']}, scenario {scenario['hash'][:8]}; "
        f"needs booktabs, graphicx, amssymb and textcomp{_engine(caption)}",
        r"\begin{table}[htbp]",
        r"\centering",
        r"\setlength{\belowcaptionskip}{\smallskipamount}",
        rf"\caption[{{{tex(scenario['title'])}}}]{{{caption}}}",
        rf"\label{{tab:{scenario['name'].replace('_', '-')}}}",
        r"\setlength{\tabcolsep}{4pt}",
        r"\sbox0{%",
        rf"\begin{{tabular}}{{@{{}}{sides}@{{}}}}",
        r"\toprule",
        *_heads(_shortened(columns, words.other_settings(summary))),
        r"\midrule",
        *_body(rows, far),
        r"\bottomrule",
        r"\end{tabular}}",
        r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _parted(
    columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> tuple[list[Column], list[list[str]], list[str]]:
    """Columns and rows without those that are the same in every row, and those in words.

    A column under a heading stays: its neighbours are read beside it.
    """
    kept, alike = [], []
    for at, column in enumerate(columns):
        texts = {row[at] for row in rows}
        if len(rows) < _ROWS_TO_COMPARE or column.group or len(texts) > 1:
            kept.append(at)
        elif (text := texts.pop()) != words.NONE:
            alike.append(f"{column.title} {text}")
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows], alike


def _shortened(columns: Sequence[Column], paths: Sequence[str]) -> list[Column]:
    """A swept path by its last part, where that is not another's too."""
    shorts = {path: words.short_title(path).replace("\n", " ") for path in paths}
    counts = Counter(shorts.values())
    return [
        replace(column, short=shorts[column.title])
        if column.title in shorts and counts[shorts[column.title]] == 1
        else column
        for column in columns
    ]


def _engine(text: str) -> str:
    """What is said of words in a script that pdfLaTeX has no letters for."""
    return "; XeLaTeX or LuaLaTeX for its words" if any(ord(sign) > 0x17F for sign in text) else ""


def _cells(summary: dict[str, Any], rows: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """The cell of each row; a sweep of drills leaves its control out."""
    cells: list[dict[str, Any]] = summary["cells"]
    return cells if len(cells) == len(rows) else [cell for cell in cells if not cell["control"]]


def _heads(columns: Sequence[Column]) -> list[str]:
    """Headings over neighbours with a rule under each, then titles over as many lines as they
    take, standing on the last."""
    lines = []
    if any(column.group for column in columns):
        texts, rules, at = [], [], 1
        for group, found in itertools.groupby(column.group for column in columns):
            count = len(list(found))
            if group:
                texts.append(rf"\multicolumn{{{count}}}{{c}}{{{tex(group)}}}")
                rules.append(rf"\cmidrule(lr){{{at}-{at + count - 1}}}")
            else:
                texts += [""] * count
            at += count
        lines += [_row(texts), " ".join(rules)]
    split = [_broken(column.short or column.title) for column in columns]
    high = max(map(len, split))
    for line in range(high):
        texts = [
            tex(parts[line - high + len(parts)]) if line >= high - len(parts) else ""
            for parts in split
        ]
        lines.append(_row(texts))
    return lines


def _broken(title: str) -> list[str]:
    """A title in lines that are no longer than need be."""
    lines: list[str] = []
    for word in title.split(" "):
        if lines and len(lines[-1]) + 1 + len(word) <= _HEAD_SIGNS:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _body(rows: Sequence[Sequence[str]], far: Sequence[bool]) -> list[str]:
    lines = []
    for number, (row, out) in enumerate(zip(rows, far, strict=True)):
        if out and number and not far[number - 1]:
            lines.append(r"\addlinespace")
        texts = [tex(text.removesuffix(" *")) for text in row]
        lines.append(_row([rf"\textit{{{text}}}" for text in texts] if out else texts))
    return lines


def _row(texts: Sequence[str]) -> str:
    return " & ".join(texts) + r" \\"


def tex(text: str) -> str:
    """Nothing of what was recorded becomes a command."""
    # Between a number and its per cent stands a thin space.
    return "".join(SIGNS.get(sign, sign) for sign in text.replace(" %", "\u202f%"))
