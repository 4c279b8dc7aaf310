"""One judged line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """``ok`` is None when the run holds nothing to judge by: neither kept nor broken."""

    name: str
    ok: bool | None
    said: str
    """A sentence with the numbers: ``ratio 1.043 ≤ 1.10 at 100 km``."""
    link_cells: tuple[int, ...] = ()
    """Cells whose link measurements this judgement stands on."""
