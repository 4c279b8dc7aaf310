"""Drawings for a page: ours, matplotlib's, and those that the run folder already holds."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

from geokv.report.sheet.blocks import Figure, Ground
from geokv.report.style import METADATA, RC


def chart(draw: Callable[[], Any], name: str, alt: str, said: str = "") -> list[Figure]:
    """What ``draw`` makes, as a block; empty when it makes None.

    The page writes it to ``plots/<name>.svg`` as well.

    Args:
        draw: returns a Matplotlib figure, or None without data. It is called with the look
            of all figures set, so colours come from ``report.style``.
        alt: what the figure shows, in one sentence, for who cannot see it.
        said: the caption.
    """
    out = io.StringIO()
    with matplotlib.rc_context(RC):
        drawn = draw()
        if drawn is None:
            return []
        drawn.savefig(out, format="svg", metadata=METADATA["svg"])
    return [Figure(out.getvalue(), f"plots/{name}.svg", said, alt)]


def kept(
    run_dir: Path, name: str, alt: str, said: str = "", ground: Ground = "any"
) -> list[Figure]:
    """``plots/<name>.svg`` of the run folder as a block; empty when there is none."""
    path = run_dir / "plots" / f"{name}.svg"
    if not path.is_file():
        return []
    return [Figure(path.read_text(encoding="utf-8"), f"plots/{name}.svg", said, alt, ground)]
