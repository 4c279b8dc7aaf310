"""What happened in a drill: every request on a time axis, with the faults shaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.measure.drill.story import Story, stories
from geokv.report.page import plot_cdf
from geokv.report.page.chart import chart
from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Block, Figure, Heading
from geokv.report.sheet.content import steps
from geokv.report.sheet.figures import normal_cells
from geokv.report.sheet.shown import figure, label_of
from geokv.report.sheet.words import words_of
from geokv.scenario import read_back

_MOST = 6


def timeline_section(summary: dict[str, Any], run_dir: Path) -> Section | None:
    """A drawing per cell, of many those that are not passed first, and what was done when. The
    control has a section of its own."""
    if summary.get("kind") != "drill":
        return None
    words, title = words_of("en"), summary["scenario"]["title"]
    told = {story.cell: story for story in stories(run_dir)}
    cells = [cell for cell in normal_cells(summary) if cell["cell"] in told]
    shown = sorted(cells, key=lambda cell: cell["verdict"] == "pass")[:_MOST]
    blocks: list[Block] = []
    for number, cell in enumerate(shown):
        label = label_of(cell, words)
        if len(shown) > 1:
            blocks.append(Heading(label.capitalize(), 3))
        said = "" if number else words.text["figure_said"]
        drawn = figure(told[cell["cell"]], words, f"{title}: {label}", said)
        blocks.append(Figure(drawn.svg, drawn.file, said, _alt(told[cell["cell"]], label)))
    scenario = read_back(run_dir / "scenario.yaml")
    blocks += [Heading(words.text["steps"], 3), *steps(summary, scenario, words)]
    if shown:
        first = shown[0]
        blocks += _spread(summary, told[first["cell"]], label_of(first, words))
    return Section("timeline", words.text["timeline"], blocks)


def _spread(summary: dict[str, Any], story: Story, label: str) -> list[Figure]:
    """The answered requests of the first cell, by how they were served."""
    names = words_of("en").request_fates
    lines = {
        name: [one.ttft_ms for one in story.asked if one.fate == fate and one.ttft_ms is not None]
        for fate, name in names.items()
    }
    panel = plot_cdf.Panel(label, {name: times for name, times in lines.items() if times})
    return chart(
        lambda: plot_cdf.draw(summary, [panel], "Times to first token by how a request was served"),
        "ttft_cdf",
        "Distribution of the time to first token of requests, a line per way of serving.",
    )


def _alt(story: Story, label: str) -> str:
    faults = ", ".join(
        f"{fault.name} from {fault.took_ms:.0f} ms"
        + (f" to {fault.healed_ms:.0f} ms" if fault.healed_ms is not None else "")
        for fault in story.faults
        if fault.took_ms is not None
    )
    answered = sum(one.ttft_ms is not None for one in story.asked)
    return (
        f"{label}: time to first token of {len(story.asked)} requests over {story.end_ms:.0f} ms, "
        f"{answered} answered; faults: {faults or 'none seen'}."
    )
