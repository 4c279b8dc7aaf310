"""A part of a run's page with a heading of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geokv.report.sheet.blocks import Block


@dataclass(frozen=True)
class Section:
    """``id``: what a link names it by, in small letters and hyphens, once on a page.

    Headings inside are of level 3 and below.
    """

    id: str
    title: str
    blocks: list[Block]


Maker = Callable[[dict[str, Any], Path], Section | None]
"""Makes a section from the summary and the run folder; None where it has nothing to say.

Everything else that a run folder holds is written before sections are made.
"""
