"""Energy as a reader sees it: figures and the section of the page."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from handwritten import SCENARIO, Run

from geokv.measure import summarise
from geokv.report import plot_energy, plot_sun, plot_tornado
from geokv.report.page.power import power_section
from geokv.report.plots import draw_plots
from geokv.report.sheet.blocks import Bullets, Figure, Heading, Table

SITES = {
    "a": {
        "carbon_intensity_g_per_kwh": 200, "price_per_kwh": [-0.02] * 6 + [0.2] * 18,
        "source": "one who knows",
    },
    "b": {
        "carbon_intensity_g_per_kwh": [50.0] * 12 + [400.0] * 12, "price_per_kwh": 0.1,
        "source": "another",
    },
}  # fmt: skip


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    scenario = {**copy.deepcopy(SCENARIO), "energy": {"sites": SITES}}
    return Run(scenario).write(tmp_path)


def section(run_dir: Path) -> tuple[dict[str, Any], list[Any]]:
    summary = summarise(run_dir)
    draw_plots(summary, run_dir / "plots")
    made = power_section(summary, run_dir)
    assert made is not None
    return summary, made.blocks


def test_the_section_says_what_the_summary_says(run_dir: Path) -> None:
    summary, blocks = section(run_dir)
    requests, saves, carbon, price = (block for block in blocks if isinstance(block, Table))
    energy = summary["energy"]
    cell = energy["cells"][2]
    joules = [f"{cell['arms'][arm]['energy_j']:.1f}" for arm in cell["arms"]]
    assert requests.rows[2][:4] == ["a-b 100 km", *joules]
    share = cell["remote_hit_saves"]["break_even"]["utilisation"]
    assert saves.rows[2][-1] == f"{100 * share:.3g} %"
    day = energy["follow_the_sun"][0]["cells"][2]
    assert carbon.rows[2][5:] == [f"{100 * day['saved']:.2f} %", "12", "12"]
    assert len(price.rows) == len(summary["cells"])
    (grades,) = (block for block in blocks if isinstance(block, Bullets))
    assert grades.items[0] == "grade of this run: constants"
    assert grades.items[1].startswith("cpu, nvml: ")
    said = " ".join(block.text for block in blocks if hasattr(block, "text"))
    assert "one who knows" in said and "another" in said
    assert [block.file for block in blocks if isinstance(block, Figure)] == [
        "plots/energy_vs_km.svg", "plots/tornado.svg", "plots/follow_the_sun.svg",
        "plots/follow_the_price.svg",
    ]  # fmt: skip


def test_a_hit_that_never_pays_says_so(tmp_path: Path) -> None:
    energy = {"gpu": {"prefill_w": 70}}
    run = Run({**copy.deepcopy(SCENARIO), "energy": energy})
    _, blocks = section(run.write(tmp_path))
    saves = [block for block in blocks if isinstance(block, Table)][1]
    assert saves.rows[2][-2:] == ["never", "never"]


def test_what_was_metered_is_shown_beside_the_proxy(run_dir: Path) -> None:
    summary = summarise(run_dir)
    arm = {"n": 2, "cpu_s": 0.25, "cpu_j": 0.95, "energy_j": 0.95, "j_per_output_token": 0.475}
    measured = {
        "of": "geokv-tiny", "meter": "cpu-time", "gpu_idle_w": None,
        "cells": [{"cell": 1, "arms": {"remote_hit": arm}}],
    }  # fmt: skip
    summary["energy"]["measured"] = measured
    made = power_section(summary, run_dir)
    assert made is not None
    at = made.blocks.index(Heading("Metered", 3))
    table, said = made.blocks[at + 1], made.blocks[at + 2]
    assert isinstance(table, Table)
    assert (table.head, table.rows) == (
        ["cell", "arm", "n", "CPU s", "CPU J", "J", "J per output token"],
        [["a-b 50 km", "remote hit", "2", "0.25", "0.95", "0.95", "0.475"]],
    )
    assert "not of what the run stands for" in said.text


def test_a_run_without_a_number_has_no_section_and_no_figure(tmp_path: Path) -> None:
    run = Run()
    for record in run.cells:
        record["links"].pop()
    summary = summarise(run.write(tmp_path))
    assert power_section(summary, tmp_path) is None
    drawn = (plot_energy.draw, plot_tornado.draw, plot_sun.draw_carbon, plot_sun.draw_price)
    assert [draw(summary) for draw in drawn] == [None] * 4


def test_figures_have_what_they_are_called(run_dir: Path) -> None:
    summary = summarise(run_dir)
    tornado = plot_tornado.draw(summary)
    assert tornado is not None
    bars = summary["energy"]["tornado"]["bars"]
    axes = tornado.axes[0]
    assert len(axes.patches) == 2 * len(bars)
    # The widest is on top, and reaches from its low end to its high one.
    top = axes.patches[-2:]
    ends = sorted(one.get_x() + one.get_width() for one in top)
    assert ends == pytest.approx(sorted((bars[0]["at_low"], bars[0]["at_high"])))
    by_km = plot_energy.draw(summary)
    assert by_km is not None
    for axes, arm in zip(by_km.axes, ("recompute", "local_hit", "remote_hit"), strict=True):
        tops = [one.get_y() + one.get_height() for one in axes.patches]
        tallest = max(cell["arms"][arm]["energy_j"] for cell in summary["energy"]["cells"][:3])
        assert max(tops) == pytest.approx(tallest, rel=1e-3)
    price = plot_sun.draw_price(summary)
    assert price is not None
    assert price.axes[0].get_ylim()[0] == -0.02
