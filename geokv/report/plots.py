"""``plots/``: each figure as SVG and PNG, drawn from the summary alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from geokv.report import plot_spans, plot_ttft
from geokv.report.disk import saving
from geokv.report.style import METADATA, RC

FIGURES = {"ttft_vs_km": plot_ttft.draw, "remote_hit_spans": plot_spans.draw}
_DPI = 160


def draw_plots(summary: dict[str, Any], folder: Path) -> list[Path]:
    """Draw every figure that the run has data for; returns the files.

    Raises:
        RunError: a full disk.
        ConfigError: the folder cannot be written to.
    """
    with saving(folder):
        folder.mkdir(exist_ok=True)
    files = []
    with matplotlib.rc_context(RC):
        for name, draw in FIGURES.items():
            figure: Figure | None = draw(summary)
            if figure is None:
                continue
            for kind, metadata in METADATA.items():
                path = folder / f"{name}.{kind}"
                with saving(path):
                    figure.savefig(path, format=kind, dpi=_DPI, metadata=metadata)
                files.append(path)
    return files
