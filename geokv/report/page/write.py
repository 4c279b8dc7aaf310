"""Write the page of a finished run, and the drawings that are only made for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.report.disk import saving, write_text
from geokv.report.page.content import sections
from geokv.report.page.html import page_html
from geokv.report.sheet.blocks import Figure


def write_page(run_dir: Path, summary: dict[str, Any]) -> None:
    """``report.html`` and its drawings under ``plots/``. Every other output is there already.

    Raises:
        RunError: broken or missing records, or a full disk.
        ConfigError: the folder cannot be written to.
    """
    made = sections(summary, run_dir)
    with saving(run_dir / "plots"):
        (run_dir / "plots").mkdir(exist_ok=True)
    for section in made:
        for block in section.blocks:
            if isinstance(block, Figure):
                write_text(run_dir / block.file, block.svg)
    write_text(run_dir / "report.html", page_html(summary, made))
