"""The figures of a measurement run: over distance, by arm, and those the scenario asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.measure.records import load_requests
from geokv.report import words
from geokv.report.page import plot_cdf, plot_gain
from geokv.report.page.chart import chart, kept
from geokv.report.page.section import Section
from geokv.report.plot_panels import single_axis
from geokv.report.sheet.blocks import Block, Figure, Ground
from geokv.scenario import read_back

_SPREAD = "How the times to first token are spread"


def figures_section(summary: dict[str, Any], run_dir: Path) -> Section | None:
    """None of a drill, which has its timeline, unless its scenario asks for figures."""
    blocks: list[Block] = []
    if summary.get("kind") != "drill":
        limit = read_back(run_dir / "scenario.yaml").expect.gain_change_percent_at_most
        blocks += kept(
            run_dir,
            "ttft_vs_km",
            _ttft_alt(summary),
            "Bars are intervals of the median; no remote hit can be below the dashed line.",
        )
        blocks += kept(
            run_dir,
            "remote_hit_spans",
            "Stacked bars: the spans of a remote hit at each distance, beside its lower bound.",
            "Each span is the median over the cell's requests; together they are the TTFT.",
        )
        blocks += chart(
            lambda: plot_gain.draw(summary, limit),
            "gain_change",
            "Change of the gain against 0 km over distance, in both readings.",
            "Reading A is the relative change of the gain, reading B the difference in points.",
        )
        blocks += _spread(summary, run_dir)
    for asked in summary.get("figures", []):
        # The colours of a map of numbers mean something, so they stay what they are.
        ground: Ground = "light" if asked["kind"] == "heat" else "any"
        blocks += kept(run_dir, asked["name"], asked["title"], ground=ground)
    return Section("figures", "Figures", blocks) if blocks else None


def _spread(summary: dict[str, Any], run_dir: Path) -> list[Figure]:
    """One panel per arm; of many cells in range those spread evenly over the sweep."""
    cells = [cell for cell in summary["cells"] if cell["valid"] and not cell["out_of_range"]]
    chosen = evenly(cells, plot_cdf.MOST_LINES)
    # With several seeds a row of the table stands for a cell of each.
    place = {one["cell"]: cell["cell"] for cell in cells for one in cell.get("by_seed", [cell])}
    times: dict[tuple[int, str], list[float]] = {}
    for row in load_requests(run_dir):
        if row.timed and not row.warmup and row.ttft_ns is not None:
            times.setdefault((place.get(row.cell, row.cell), row.arm), []).append(row.ttft_ns / 1e6)
    plain = single_axis(summary)
    panels = [
        plot_cdf.Panel(
            title,
            {
                f"{cell['km']:g} km" if plain else cell["label"]: times.get(
                    (cell["cell"], arm.replace("_", "-")), []
                )
                for cell in chosen
            },
        )
        for arm, title in words.ARM_TITLES.items()
        if arm.replace("_", "-") in summary["ran"]["arms"]
    ]
    said = "Empirical distributions; warm-ups and cells out of range are left out."
    if len(chosen) < len(cells):
        said += f" {len(chosen)} of {len(cells)} cells are shown."
    return chart(
        lambda: plot_cdf.draw(summary, panels, _SPREAD),
        "ttft_cdf",
        "Distribution of the time to first token of each arm, a line per cell.",
        said,
    )


def evenly(cells: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most so many, the first and the last among them."""
    if len(cells) <= most:
        return cells
    return [cells[round(number * (len(cells) - 1) / (most - 1))] for number in range(most)]


def _ttft_alt(summary: dict[str, Any]) -> str:
    """The ends of each line, in words."""
    near = sorted(
        (cell for cell in summary["cells"] if cell["valid"] and not cell["out_of_range"]),
        key=lambda cell: float(cell["km"]),
    )
    if not near:
        return "Median time to first token against distance."
    parts = []
    for arm, title in words.ARM_TITLES.items():
        ends = [cell["arms"].get(arm, {}).get("ttft_p50_ms") for cell in (near[0], near[-1])]
        if None not in ends:
            parts.append(f"{title} {words.ms(ends[0])} to {words.ms(ends[1])} ms")
    span = f"{near[0]['km']:g} to {near[-1]['km']:g} km"
    return f"Median time to first token from {span}: {', '.join(parts)}."
