"""One table at one site; every other site pays the way there for a lookup."""

from typing import Annotated, Literal

from pydantic import Field

from geokv.config import Strict
from geokv.units import Seconds


class CentralDirectory(Strict):
    """One site keeps the table of who has which chunk; all others ask it over their links."""

    kind: Literal["central"]
    site: str
    """The site that holds the table."""
    anti_entropy: Annotated[Seconds, Field(ge=0.001, le=3600)] | None = None
    """Number what the table is told, and compare so often what it knows with what is so."""
