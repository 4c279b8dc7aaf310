"""What a scenario promises about the energy proxy."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from geokv.config import Strict


class EnergyPromises(Strict):
    """Each one that is set becomes a judged line, over every cell in range."""

    ordered: bool = False
    """Recompute draws more than a remote hit, and that more than a local hit."""
    saved_change_percent_at_most: Annotated[float, Field(ge=0)] | None = None
    """Joules that a remote hit saves, against those at 0 km."""
    break_even_utilisation_at_most: Annotated[float, Field(gt=0)] | None = None
    """Share of the line from which on a lit pair pays for itself."""
    following_saves_percent_at_least: Annotated[float, Field(ge=0)] | None = None
    """Of a day at the cheaper site of each hour, over the best of what is always the same."""
