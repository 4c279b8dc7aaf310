"""One table at one site; every other site pays the way there for a lookup."""

from typing import Literal

from geokv.config import Strict


class CentralDirectory(Strict):
    kind: Literal["central"]
    site: str
    """The site that holds the table."""
