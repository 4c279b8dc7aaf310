"""Forgetting a tenant everywhere, within a bound."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from geokv.config import Strict
from geokv.units import Seconds


class Purge(Strict):
    """Tenants can have everything of theirs forgotten, everywhere, within a bound."""

    bound: Annotated[Seconds, Field(ge=0.01, le=3600)] = 2.0
    """A site that has not heard of the directory's site for so long uses nothing; so long
    after a purge nothing of it is used anywhere."""
