"""The section of the seven gaps: a table each, pictures where something varies, INV-7."""

from __future__ import annotations

from pathlib import Path

from handwritten_gaps import asks, came, served, view

from geokv.measure.gaps import CellView, gaps
from geokv.report.page.gaps import gaps_section
from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Block, Figure, Fold, Heading, Para, Table

HEADINGS = [
    "MG1: remote access pattern", "MG2: metadata", "MG3: completion",
    "MG4: reuse distance and residency", "MG5: prefetch slack", "MG6: what the tail is made of",
    "MG7: replayable trace",
]  # fmt: skip


def section_of(*valid: bool) -> Section | None:
    """Of one and the same cell as often as that."""
    rows = [
        served(
            f"r{number}", number, lookup=1, fetch=4 + 40 * (number == 99), prefill=5,
            chunks_remote=1, cached_tokens=256, chunks_by_site={"a": 1}, **asks("x", rest=20),
        )
        for number in range(100)
    ]  # fmt: skip
    one = view(rows, *(came(number + 3, f"r{number}", 0, "x") for number in range(100)))
    views = [CellView(one.cell, rows, one.history, None, counts) for counts in valid]
    return gaps_section({"gaps": gaps(views, 1000), "cells": []}, Path())


def blocks_of(*valid: bool) -> list[Block]:
    section = section_of(*valid)
    assert section is not None
    return section.blocks


def test_every_gap_has_a_heading_and_its_numbers() -> None:
    blocks = blocks_of(True)
    assert [one.text for one in blocks if isinstance(one, Heading)] == HEADINGS
    tables = [one for one in blocks if isinstance(one, Table)]
    assert all(len(row) == len(table.head) for table in tables for row in table.rows)
    tail = next(table for table in tables if "dominated by" in table.head)
    cell = dict(zip(tail.head, tail.rows[0], strict=True))
    assert (cell["worst"], cell["dominated by"], cell["its share"]) == (
        "1 %: 1",
        "fetch",
        "100.0 %",
    )
    assert cell["p99 ms"] == "10.000" and cell["slowest ms"] == "50.000"
    figures = {one.file: one for one in blocks if isinstance(one, Figure)}
    assert set(figures) == {"plots/lru.svg", "plots/attribution.svg"}
    assert "worst 1" in figures["plots/attribution.svg"].svg
    assert all(one.alt for one in figures.values())


def test_long_tables_are_folded() -> None:
    blocks = blocks_of(*[True] * 20)
    folds = [one for one in blocks if isinstance(one, Fold)]
    assert folds and "20 rows" in folds[0].title
    assert not any(isinstance(one, Table) and len(one.rows) > 12 for one in blocks)


def test_a_cell_whose_links_were_off_shows_no_number() -> None:
    tables = [one for one in blocks_of(True, False, True) if isinstance(one, Table)]
    assert {len(table.rows) for table in tables} == {2}
    none = section_of(False)
    assert none is not None and [type(block) for block in none.blocks] == [Para]


def test_a_run_from_before_there_were_gaps_has_no_section() -> None:
    assert gaps_section({"cells": []}, Path()) is None


def test_a_run_that_did_not_write_down_who_fetched_says_so() -> None:
    """As of a geokv before there were gaps; a run without a fetch says that instead."""
    rows = [served(f"r{number}", number, prefill=5, **asks("x", rest=20)) for number in range(3)]
    measured = gaps([view(rows)], 1000)
    for cells, said in (
        ([{"arms": {"remote_hit": {"fetched": 3}}}], "do not say for which request"),
        ([{"fates": {"fetches": {"served": 1}}}], "do not say for which request"),
        ([{"arms": {"remote_hit": {"fetched": 0}}}], "No request read anything"),
    ):
        section = gaps_section({"gaps": measured, "cells": cells}, Path())
        assert section is not None
        assert any(isinstance(one, Para) and said in one.text for one in section.blocks)


def test_figures_name_their_cell_which_is_in_range_and_no_control() -> None:
    rows = [
        served(f"r{number}", number, fetch=4, prefill=5, **asks("x", rest=20))
        for number in range(9)
    ]
    measured = gaps([view(rows), view(rows), view(rows)], 1000)
    for gap in measured.values():
        for kind in gap.values():
            for place, row in enumerate(kind):
                row |= {"cell": place, "label": f"{place} km", "group": "remote-hit"}
    cells = [
        {"cell": 0, "out_of_range": True},
        {"cell": 1, "out_of_range": False},
        {"cell": 2, "control": True},
    ]
    section = gaps_section({"gaps": measured, "cells": cells}, Path())
    assert section is not None
    figures = {one.file: one.svg for one in section.blocks if isinstance(one, Figure)}
    assert set(figures) == {"plots/lru.svg", "plots/attribution.svg"}
    for svg in figures.values():
        assert "cell: 1 km" in svg and "0 km<" not in svg and "2 km<" not in svg
    assert "cell: 1 km, remote hit" in figures["plots/lru.svg"]
