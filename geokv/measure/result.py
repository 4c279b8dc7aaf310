"""One judged line."""

from __future__ import annotations

from dataclasses import dataclass

from geokv.measure.cell import CellResult


@dataclass(frozen=True)
class Result:
    """``ok`` is None when the run holds nothing to judge by: neither kept nor broken."""

    name: str
    ok: bool | None
    said: str
    """A sentence with the numbers: ``ratio 1.043 ≤ 1.10 at 100 km``."""
    link_cells: tuple[int, ...] = ()
    """Cells whose link measurements this judgement stands on."""


def indices(cells: list[CellResult]) -> tuple[int, ...]:
    """``link_cells`` of a judgement that stands on these."""
    return tuple(cell.cell.index for cell in cells)


def at_most(ok: bool) -> str:
    """The sign between a number and the limit it should not pass."""
    return "≤" if ok else ">"


def at_least(ok: bool) -> str:
    """The sign between a number and the limit it should reach."""
    return "≥" if ok else "<"
