"""Write the sheets of a finished drill: each language as Markdown and HTML, and its drawings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.measure.drill.story import stories
from geokv.report.disk import saving, write_text
from geokv.report.sheet.blocks import Figure
from geokv.report.sheet.content import compose
from geokv.report.sheet.html import sheet_html
from geokv.report.sheet.markdown import sheet_markdown
from geokv.report.sheet.words import LANGUAGES, Language, words_of
from geokv.scenario import read_back


def sheet_file(run_dir: Path, language: Language) -> Path:
    """Where the page in a language lies."""
    return run_dir / f"sheet.{language}.html"


def write_sheets(run_dir: Path, summary: dict[str, Any]) -> None:
    """``sheet.<language>.md``, ``sheet.<language>.html`` and ``plots/timeline-*.svg``.

    Raises:
        RunError: a broken history, or a full disk.
        ConfigError: the folder cannot be written to.
    """
    scenario = read_back(run_dir / "scenario.yaml")
    told = stories(run_dir)
    with saving(run_dir / "plots"):
        (run_dir / "plots").mkdir(exist_ok=True)
    for language in LANGUAGES:
        sheet = compose(summary, scenario, told, words_of(language))
        for block in sheet.blocks:
            if isinstance(block, Figure):
                write_text(run_dir / block.file, block.svg)
        write_text(run_dir / f"sheet.{language}.md", sheet_markdown(sheet))
        write_text(sheet_file(run_dir, language), sheet_html(sheet))
