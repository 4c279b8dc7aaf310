"""``plots/``: each figure as SVG and PNG, drawn from the summary alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from geokv.report import (
    plot_energy,
    plot_heat,
    plot_lines,
    plot_spans,
    plot_sun,
    plot_tiers,
    plot_tornado,
    plot_ttft,
)
from geokv.report.disk import saving
from geokv.report.style import METADATA, RC, save

FIGURES = {
    "ttft_vs_km": plot_ttft.draw,
    "remote_hit_spans": plot_spans.draw,
    "energy_vs_km": plot_energy.draw,
    "tornado": plot_tornado.draw,
    "follow_the_sun": plot_sun.draw_carbon,
    "follow_the_price": plot_sun.draw_price,
}
KINDS = {"lines": plot_lines.draw, "heat": plot_heat.draw, "tiers": plot_tiers.draw}
"""What a scenario can ask for."""


def draw_plots(summary: dict[str, Any], folder: Path) -> list[Path]:
    """Draw every figure that the run has data for; returns the files.

    A figure of which there is nothing to draw, and that lies there from before, is removed.

    Raises:
        RunError: a full disk.
        ConfigError: the folder cannot be written to.
    """
    with saving(folder):
        folder.mkdir(exist_ok=True)
    files = []
    with matplotlib.rc_context(RC):
        drawn: dict[str, Figure | None] = {}
        if summary.get("kind") != "drill":
            drawn = {name: draw(summary) for name, draw in FIGURES.items()}
        for asked in summary.get("figures", []):
            drawn[asked["name"]] = KINDS[asked["kind"]](summary, asked)
        for name, figure in drawn.items():
            for kind in METADATA:
                path = folder / f"{name}.{kind}"
                if figure is None:
                    with saving(path):
                        path.unlink(missing_ok=True)
                    continue
                save(figure, path)
                files.append(path)
    return files
