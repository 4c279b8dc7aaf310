"""Faults of what travels, after TCP has seen it as whole."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from geokv.scenario.timeline.event import Lasting

OneIn = Annotated[int, Field(ge=1, le=1_000_000)]


class CorruptChunk(Lasting):
    """Of every so many chunks served over the link, one has damaged payload."""

    fault: Literal["corrupt-chunk"]
    link: str
    one_in: OneIn = 1


class LostCompletion(Lasting):
    """Of every so many transfers the site serves, one is never said to be complete."""

    fault: Literal["lost-completion"]
    site: str
    one_in: OneIn = 1
