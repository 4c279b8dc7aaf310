r"""``table.tex``: the table as a LaTeX ``table`` with booktabs, to ``\input`` into a paper."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from geokv.report import drill_words, words
from geokv.report.drill_sweep import is_sweep, sweep_rows, sweep_titles
from geokv.report.grid import Column, wide_columns, wide_table

_SIGNS = {
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
_LEFT_HEADS = frozenset({"cell", "verdict", "valid"})


def to_latex(summary: dict[str, Any]) -> str:
    r"""The table of a run or a drill. It needs ``\usepackage{booktabs}``; with it ``graphicx``,
    since a table with many columns is shrunk to the width of the text.

    Out-of-range rows are set in italics under a rule of their own; a void cell says so.
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
    scenario = summary["scenario"]
    facts = (drill_words if drill else words).header(summary)
    caption = (
        f"{tex(scenario['title'])}. {tex(' · '.join(facts))}. Verdict: {tex(summary['verdict'])}."
    )
    if any(far):
        caption += " In italics: out of range, shown for comparison."
    sides = "".join("l" if column.title in _LEFT_HEADS else "r" for column in columns)
    lines = [
        f"% geokv {summary['provenance']['versions']['geokv']}, scenario {scenario['hash'][:8]}; "
        "needs booktabs, graphicx, amssymb and textcomp",
        r"\begin{table}[htbp]",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\label{{tab:{scenario['name'].replace('_', '-')}}}",
        r"\resizebox{\textwidth}{!}{%",
        rf"\begin{{tabular}}{{@{{}}{sides}@{{}}}}",
        r"\toprule",
        *_heads(columns),
        r"\midrule",
        *_body(rows, far),
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _cells(summary: dict[str, Any], rows: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """The cell of each row; a sweep of drills leaves its control out."""
    cells: list[dict[str, Any]] = summary["cells"]
    return cells if len(cells) == len(rows) else [cell for cell in cells if not cell["control"]]


def _heads(columns: Sequence[Column]) -> list[str]:
    """Headings over neighbours with a rule under each, then titles over as many lines as they
    have words, standing on the last."""
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
    split = [(column.short or column.title).split(" ") for column in columns]
    high = max(map(len, split))
    for line in range(high):
        texts = [
            tex(parts[line - high + len(parts)]) if line >= high - len(parts) else ""
            for parts in split
        ]
        lines.append(_row(texts))
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
    return "".join(_SIGNS.get(sign, sign) for sign in text.replace(" %", "\u202f%"))
