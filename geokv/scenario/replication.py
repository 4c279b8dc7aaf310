"""Copies that sites make of their chunks at other sites, in the background."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from geokv.config import Strict
from geokv.units import Seconds


class Replication(Strict):
    """Either ``to`` or ``copies``."""

    to: list[str] = Field(default_factory=list)
    """Sites that get a copy of every chunk that another site computes."""
    copies: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Or so many: the sites that follow in the topology's order, the first after the last."""
    when: Literal["published", "hot"] = "published"
    """As soon as the directory has heard of a chunk, or when it is used again."""
    deadline: Annotated[Seconds, Field(gt=0, le=3600)] = 30.0
    """Of one chunk to all its sites."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Replication:
        if bool(self.to) == (self.copies is not None):
            raise ValueError("must have either to or copies")
        return self

    def targets(self, site: str, sites: Sequence[str]) -> tuple[str, ...]:
        """Where copies of ``site`` go."""
        if self.copies is None:
            return tuple(other for other in self.to if other != site)
        start = list(sites).index(site) + 1
        return tuple([*sites[start:], *sites[: start - 1]][: self.copies])
