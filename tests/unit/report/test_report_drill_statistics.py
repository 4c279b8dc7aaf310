"""Intervals and differences of a drill where those of a measurement run stand too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from handwritten_drill import Drill
from handwritten_drill_sweep import swept_drill

from geokv.report.console import print_run, table_console
from geokv.report.drill_csv import to_drill_csv
from geokv.report.drill_markdown import to_drill_markdown
from geokv.report.page.statistics import statistics_section
from geokv.report.run_folder import write_all
from geokv.report.sheet.blocks import Bullets, Fold, Heading, Para, Table


def reported(drill: Drill, folder: Path) -> dict[str, Any]:
    return write_all(drill.write(folder), ("csv",))


def blocks_of(summary: dict[str, Any]) -> list[Any]:
    """Of the page's section, what is folded laid open."""
    section = statistics_section(summary, Path())
    assert section is not None
    return [
        one
        for block in section.blocks
        for one in (block.blocks if isinstance(block, Fold) else [block])
    ]


def times_of(summary: dict[str, Any]) -> list[list[str]]:
    (table,) = [one for one in blocks_of(summary) if isinstance(one, Table) and "n" in one.head]
    assert table.head[:3] == ["cell", "requests", "n"]
    return table.rows


def said_on_a_terminal(summary: dict[str, Any]) -> str:
    console = table_console()
    with console.capture() as captured:
        print_run(summary, console)
    return captured.get()


def test_the_page_shows_the_intervals_that_it_speaks_of(tmp_path: Path) -> None:
    summary = reported(Drill(), tmp_path)
    written, control = times_of(summary)
    cell = summary["cells"][0]
    low, high = (f"{cell['mean_interval'][end]:.3f}" for end in ("low_ms", "high_ms"))
    shown = ["60", "29.000", f"{low} – {high}", "18.000", "18.000 – 18.000"]
    assert written[:7] == ["as written", "all answered", *shown]
    assert written[7:] == [f"{100 * cell['interval']['confidence']:.1f}", "–", "–", "73.000"]
    assert control[:3] == ["control", "all answered", "60"]
    assert any(isinstance(one, Para) and "share queues" in one.text for one in blocks_of(summary))


def test_a_drill_of_one_cell_says_nothing_of_differences_anywhere(tmp_path: Path) -> None:
    summary = reported(Drill(), tmp_path)
    headings = [one.text for one in blocks_of(summary) if isinstance(one, Heading)]
    assert headings == ["Time to first token, with intervals"]
    page = to_drill_markdown(summary)
    assert "What differs" not in page and "no TTFT is compared" not in page
    assert "TTFT of" not in said_on_a_terminal(summary)


def test_a_swept_drill_says_what_differs_wherever_a_measurement_does(tmp_path: Path) -> None:
    summary = reported(swept_drill(), tmp_path)
    said = "cached against cold: TTFT differs in all 4 cells"
    blocks = blocks_of(summary)
    (bullets,) = [one for one in blocks if isinstance(one, Bullets)]
    assert said in bullets.items
    (table,) = [one for one in blocks if isinstance(one, Table) and "outcome" in one.head]
    assert table.head[:3] == ["cells", "kinds", "requests"] and len(table.rows) == 12
    page = to_drill_markdown(summary)
    assert page.index("## What differs") < page.index(f"- {said}") < page.index("## Faults")
    assert "- Mann and Whitney's U test, 12 of them, p adjusted for all" in page
    lines = said_on_a_terminal(summary).splitlines()
    assert "TTFT of what is cached: differs from cold (all 4 cells)" in lines
    (neighbours,) = [line for line in lines if line.startswith("TTFT of neighbours")]
    assert neighbours.endswith("no significant difference: cached (2 of 4), cold (all 4)")


def test_each_kind_of_a_swept_cell_has_a_row_and_a_void_cell_no_time(tmp_path: Path) -> None:
    drill = swept_drill()
    drill.of("links", 1)[0]["ok"] = False
    rows = times_of(reported(drill, tmp_path))
    assert [row[1] for row in rows[:3]] == ["all answered", "cached", "cold"]
    assert len(rows) == 5 * 3
    assert [row[3:] for row in rows[3:6]] == [["void"] * 8] * 3


@pytest.mark.parametrize("made", [Drill, swept_drill])
def test_the_table_for_programs_keeps_its_columns(made: Any, tmp_path: Path) -> None:
    head = to_drill_csv(reported(made(), tmp_path)).splitlines()[0].split(",")
    assert not [name for name in head if "interval" in name or "mean" in name or name == "n"]
