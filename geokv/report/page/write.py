"""Write the page of a finished run, and the drawings that are only made for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from geokv.report.disk import saving, write_text
from geokv.report.page.content import sections
from geokv.report.page.files import files_section
from geokv.report.page.head import head
from geokv.report.page.html import page_html
from geokv.report.page.markdown import page_markdown
from geokv.report.sheet.blocks import Block, Figure, Fold


def write_page(run_dir: Path, summary: dict[str, Any], formats: Collection[str]) -> None:
    """``report.html`` or ``report.md``, or both, and the drawings under ``plots/``.

    Every other output is there already: the page shows and names it.

    Raises:
        RunError: broken or missing records, or a full disk.
        ConfigError: the folder cannot be written to.
    """
    top, made = head(summary), sections(summary, run_dir)
    made.append(files_section(run_dir, formats))
    with saving(run_dir / "plots"):
        (run_dir / "plots").mkdir(exist_ok=True)
    for section in made:
        for figure in _figures(section.blocks):
            write_text(run_dir / figure.file, figure.svg)
    if "md" in formats:
        write_text(run_dir / "report.md", page_markdown(top, made))
    if "html" in formats:
        write_text(run_dir / "report.html", page_html(top, made))


def _figures(blocks: Iterable[Block]) -> Iterator[Figure]:
    for block in blocks:
        if isinstance(block, Figure):
            yield block
        elif isinstance(block, Fold):
            yield from _figures(block.blocks)
