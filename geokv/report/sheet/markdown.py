"""A sheet as GitHub-flavoured Markdown."""

from __future__ import annotations

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
from geokv.report.sheet.shown import mark_of

_SIGNS = {"pass": "✓", "fail": "✗"}


def sheet_markdown(sheet: Sheet) -> str:
    """The whole sheet; figures are named where they lie in the run folder."""
    lines = [
        f"# {_text(sheet.title)}",
        "",
        f"{_text(sheet.kicker)}",
        "",
        f"*{_text(sheet.question)}*",
        "",
        f"**{_SIGNS.get(sheet.verdict, '?')} {sheet.verdict_word}** — {sheet.verdict_said}",
        "",
    ]
    for block in sheet.blocks:
        lines += [*_block(block), ""]
    lines += ["---", "", _text(sheet.footer)]
    return "\n".join(lines) + "\n"


def _block(block: Block) -> list[str]:
    if isinstance(block, Heading):
        return [f"{'#' * block.level} {_text(block.text)}"]
    if isinstance(block, Para):
        return [_text(block.text)]
    if isinstance(block, Bullets):
        return [f"- {_text(item)}" for item in block.items]
    if isinstance(block, Cards):
        names = [name for name, _, _ in block.items]
        return _table(names, [[value for _, value, _ in block.items]], False)
    if isinstance(block, Code):
        said = [_text(block.said), ""] if block.said else []
        return [*said, "```", *block.lines, "```"]
    if isinstance(block, Figure):
        said = ["", _text(block.said)] if block.said else []
        return [f"![]({block.file})", *said]
    if isinstance(block, Table):
        head, rows = block.head, block.rows
        if block.marks:
            head = ["", *head]
            marked = zip(block.marks, rows, strict=True)
            rows = [[mark_of(mark), *row] for mark, row in marked]
        return _table(head, rows, block.numbers)
    raise TypeError(f"no Markdown for {type(block).__name__}")


def _table(head: list[str], rows: list[list[str]], numbers: bool) -> list[str]:
    rest = " ---: |" if numbers else " --- |"
    return [_row(head), "| --- |" + rest * (len(head) - 1), *map(_row, rows)]


def _row(texts: list[str]) -> str:
    return "| " + " | ".join(_text(text).replace("|", "\\|") for text in texts) + " |"


def _text(text: str) -> str:
    """Nothing of what was recorded becomes mark-up."""
    for sign in "\\`*_<[":
        text = text.replace(sign, "\\" + sign)
    return text.replace("\n", " ")
