"""Blocks, and a sheet, as GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from geokv.report.sheet.blocks import (
    Block,
    Bullets,
    Cards,
    Code,
    Figure,
    Fold,
    Heading,
    Links,
    Para,
    Sheet,
    Table,
)
from geokv.report.sheet.shown import mark_of
from geokv.report.words import VERDICT_SIGNS


def sheet_markdown(sheet: Sheet) -> str:
    """The whole sheet; figures are named where they lie in the run folder."""
    lines = [
        f"# {plain(sheet.title)}",
        "",
        f"{plain(sheet.kicker)}",
        "",
        f"*{plain(sheet.question)}*",
        "",
        f"**{VERDICT_SIGNS[sheet.verdict]} {sheet.verdict_word}** — {sheet.verdict_said}",
        "",
    ]
    lines += blocks_markdown(sheet.blocks)
    lines += ["---", "", plain(sheet.footer)]
    return "\n".join(lines) + "\n"


def blocks_markdown(blocks: Sequence[Block], top: int = 2) -> list[str]:
    """Lines, an empty one behind every block; no heading is above level ``top``."""
    return [line for block in blocks for line in (*_block(block, top), "")]


def _block(block: Block, top: int) -> list[str]:
    if isinstance(block, Heading):
        return [f"{'#' * max(block.level, top)} {plain(block.text)}"]
    if isinstance(block, Para):
        return [plain(block.text)]
    if isinstance(block, Bullets):
        return [f"- {plain(item)}" for item in block.items]
    if isinstance(block, Cards):
        names = [name for name, _, _ in block.items]
        return _table(names, [[value for _, value, _ in block.items]], False)
    if isinstance(block, Code):
        said = [plain(block.said), ""] if block.said else []
        return [*said, "```", *block.lines, "```"]
    if isinstance(block, Figure):
        said = ["", plain(block.said)] if block.said else []
        return [f"![{plain(block.alt)}]({block.file})", *said]
    if isinstance(block, Links):
        return [f"- [{plain(file)}]({file}) {plain(said)}" for file, said in block.items]
    if isinstance(block, Fold):
        inside = blocks_markdown(block.blocks, top)[:-1]
        return [f"<details><summary>{escape(block.title)}</summary>", "", *inside, "", "</details>"]
    if isinstance(block, Table):
        head, rows = block.head, block.rows
        if block.marks:
            head = ["", *head]
            marked = zip(block.marks, rows, strict=True)
            rows = [[mark_of(mark), *row] for mark, row in marked]
        caption = [plain(block.caption), ""] if block.caption else []
        return [*caption, *_table(head, rows, block.numbers)]
    raise TypeError(f"no Markdown for {type(block).__name__}")


def _table(head: list[str], rows: list[list[str]], numbers: bool) -> list[str]:
    rest = " ---: |" if numbers else " --- |"
    return [_row(head), "| --- |" + rest * (len(head) - 1), *map(_row, rows)]


def _row(texts: list[str]) -> str:
    return "| " + " | ".join(plain(text).replace("|", "\\|") for text in texts) + " |"


def plain(text: str) -> str:
    """Nothing of what was recorded becomes mark-up."""
    for sign in "\\`*_<[":
        text = text.replace(sign, "\\" + sign)
    return text.replace("\n", " ")
