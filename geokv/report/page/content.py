"""What a page has, in this order. A measurement that explains itself adds its maker here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.report.page.figures import figures_section
from geokv.report.page.fine_print import notes_section
from geokv.report.page.gaps import gaps_section
from geokv.report.page.honesty import honesty_section
from geokv.report.page.judged import control_section, judged_section
from geokv.report.page.links import links_section
from geokv.report.page.power import power_section
from geokv.report.page.reproduce import reproduce_section
from geokv.report.page.results import results_section
from geokv.report.page.section import Maker, Section
from geokv.report.page.setup import setup_section
from geokv.report.page.statistics import statistics_section
from geokv.report.page.timeline import timeline_section

MAKERS: list[Maker] = [
    results_section,
    timeline_section,
    figures_section,
    judged_section,
    control_section,
    statistics_section,
    power_section,
    gaps_section,
    links_section,
    setup_section,
    honesty_section,
    reproduce_section,
    notes_section,
]


def sections(summary: dict[str, Any], run_dir: Path) -> list[Section]:
    """Those that have something to say of this run; files are named behind them (``write``)."""
    made = (maker(summary, run_dir) for maker in MAKERS)
    return [section for section in made if section is not None]
