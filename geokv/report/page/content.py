"""What a page has, in this order. A measurement that explains itself adds its maker here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.report.page.fine_print import notes_section
from geokv.report.page.judged import judged_section
from geokv.report.page.links import links_section
from geokv.report.page.results import figures_section, results_section
from geokv.report.page.section import Maker, Section

MAKERS: list[Maker] = [
    results_section,
    judged_section,
    figures_section,
    links_section,
    notes_section,
]


def sections(summary: dict[str, Any], run_dir: Path) -> list[Section]:
    """Those that have something to say of this run."""
    made = (maker(summary, run_dir) for maker in MAKERS)
    return [section for section in made if section is not None]
