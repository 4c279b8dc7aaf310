"""Lines of a sweep: cells that differ by one axis alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol, TypeVar

from geokv.scenario.sweep import Cell, Value


class OfCell(Protocol):
    """Whatever a cell was reduced to."""

    @property
    def cell(self) -> Cell:
        """The cell it was."""


Reduced = TypeVar("Reduced", bound=OfCell)


def lines_along(
    axis: str, results: Iterable[Reduced]
) -> list[tuple[dict[str, Value], list[Reduced]]]:
    """(what they share, the cells), one per combination of the settings other than ``axis``."""
    lines: dict[tuple[tuple[str, Value], ...], list[Reduced]] = defaultdict(list)
    for result in results:
        rest = tuple((t, v) for t, v in result.cell.settings.items() if t != axis)
        lines[rest].append(result)
    return [(dict(rest), line) for rest, line in lines.items()]
