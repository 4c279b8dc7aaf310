"""Figures and pivot tables of a sweep, from the hand-written run."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from handwritten import SCENARIO, Run

from geokv.errors import ConfigError
from geokv.measure import summarise
from geokv.report import quantities
from geokv.report.console import print_run, table_console
from geokv.report.markdown import to_markdown
from geokv.report.pivot import pivots
from geokv.report.plots import draw_plots
from geokv.report.run_folder import write_all
from geokv.scenario import load_scenario

SWEEP = [
    {"path": "links.a-b.rate", "values": ["25G", "100G"]},
    {"path": "links.a-b.km", "values": [0, 100]},
]
FIGURES: list[dict[str, Any]] = [
    {"kind": "lines", "name": "fetching", "title": "Fetch", "of": "fetch", "x": "links.a-b.km",
     "lines": "links.a-b.rate"},
    {"kind": "heat", "name": "warmth", "title": "Ratio", "of": "ttft_over_recompute",
     "x": "links.a-b.rate", "y": "links.a-b.km"},
    {"kind": "tiers", "name": "shelves", "title": "Shelves", "x": "links.a-b.km",
     "panels": "links.a-b.rate"},
]  # fmt: skip


def swept(**more: Any) -> dict[str, Any]:
    data = {**copy.deepcopy(SCENARIO), "sweep": SWEEP, "expect": {}, "figures": FIGURES}
    return {**data, **more}


@pytest.fixture
def run() -> Run:
    run = Run(swept())
    for cell in run.cells:
        scale = {"25G": 4, "100G": 1}[cell["settings"]["links.a-b.rate"]]
        for key in ("rate_bps", "payload_rate_bps"):
            cell["path"][key] //= scale
    return run


def test_every_figure_is_drawn_twice_and_alike(run: Run, tmp_path: Path) -> None:
    summary = summarise(run.write(tmp_path))
    first, second = tmp_path / "first", tmp_path / "second"
    names = {path.name for path in draw_plots(summary, first)}
    assert names >= {
        f"{name}.{kind}" for name in ("fetching", "warmth", "shelves") for kind in ("svg", "png")
    }
    draw_plots(summary, second)
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_a_void_cell_is_drawn_as_void_and_has_no_number(run: Run, tmp_path: Path) -> None:
    run.cells[0]["links"][0]["ok"] = False
    summary = summarise(run.write(tmp_path))
    draw_plots(summary, tmp_path / "plots")
    fetch, ratio, shelves, *_ = pivots(summary)
    assert fetch.rows[0] == ["25G", "void", "86.90"]
    assert ratio.rows[0][1] == "void"
    row = dict(zip(shelves.head, shelves.rows[0], strict=True))
    assert {text for title, text in row.items() if title.endswith(" ms")} == {"void"}
    for of in quantities.QUANTITIES:
        assert quantities.value(summary["cells"][0], of) is None
        # Of two requests no 99th percentile is said.
        there = quantities.value(summary["cells"][1], of) is not None
        assert there is (of != "ttft_p99")
    console = table_console()
    with console.capture() as printed:
        print_run(summary, console)
    rows = [line.split() for line in printed.get().splitlines() if line.strip().startswith("25G")]
    assert [row[-1] for row in rows[:2]] == ["✗", "✓"]


def test_no_valid_cell_leaves_no_figure(run: Run, tmp_path: Path) -> None:
    for cell in run.cells:
        cell["links"][0]["ok"] = False
    assert draw_plots(summarise(run.write(tmp_path)), tmp_path / "plots") == []


def test_a_pivot_has_a_row_per_line_and_a_column_per_value(run: Run, tmp_path: Path) -> None:
    fetch, ratio, _, even = pivots(summarise(run.write(tmp_path)))
    assert fetch.head == ["a-b rate", "a-b km 0", "a-b km 100"]
    assert fetch.rows == [["25G", "85.90", "86.90"], ["100G", "85.90", "86.90"]]
    assert ratio.head == ["a-b km", "a-b rate 25G", "a-b rate 100G"]
    assert [row[0] for row in ratio.rows] == ["0", "100"]
    assert [row[0] for row in even.rows] == ["0", "100"]
    assert even.title.startswith("Break-even")


def test_tables_for_people_have_the_pivots(run: Run, tmp_path: Path) -> None:
    summary = write_all(run.write(tmp_path))
    markdown = to_markdown(summary)
    assert "## Fetch: fetch, ms" in markdown
    assert "| 25G | 85.90 | 86.90 |" in markdown
    assert "Fetch: fetch, ms" in (tmp_path / "report.html").read_text()
    console = table_console()
    with console.capture() as printed:
        print_run(summary, console)
    lines = printed.get().splitlines()
    assert max(map(len, lines)) <= 120
    assert any("Gb/s" in line for line in lines)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x": "links.a-b.loss"}, r"figures.0.x: no axis is called links.a-b.loss"),
        ({"lines": None}, r"figures.0: does not show links.a-b.rate"),
        ({"lines": "links.a-b.km"}, r"links.a-b.km is shown twice"),
        ({"name": "warmth"}, r"two figures are called warmth"),
        ({"of": "warmth"}, r"figures.0"),
    ],
)
def test_figures_that_would_mislead_are_refused(change: dict[str, Any], said: str) -> None:
    figures = [{**FIGURES[0], **change}, *FIGURES[1:]]
    with pytest.raises(ConfigError, match=said):
        load_scenario(swept(figures=figures))


def test_numbers_keep_their_digits() -> None:
    assert quantities.shown(0.0272, "ttft_over_recompute") == "0.0272"
    assert quantities.shown(12345.6, "fetch") == "12,346"
    assert quantities.shown(100.0, "goodput") == "100"
    assert quantities.shown(None, "goodput") == "–"
