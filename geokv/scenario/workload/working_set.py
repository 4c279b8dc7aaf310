"""Several long prefixes asked for in turn, more of them than the fast tiers hold."""

from typing import Annotated, Literal

from pydantic import Field

from geokv.config import Strict
from geokv.units import Seconds


class WorkingSet(Strict):
    """``provider`` has computed every prefix before; ``asker`` serves questions behind them.

    The asker's tiers are emptied before each arm and keep what they can from then on. In
    ``local-hit`` it computes what they lost again, in ``remote-hit`` it may fetch it. Every arm
    sees the same questions in the same order.
    """

    kind: Literal["working-set"]
    provider: str
    asker: str
    prefixes: Annotated[int, Field(ge=1, le=4096)]
    """How many there are."""
    prefix_tokens: Annotated[int, Field(gt=0)]
    """Length of each."""
    order: Literal["round-robin", "zipf"] = "zipf"
    """``round-robin``: one after the other, which an LRU tier that is too small never hits;
    ``zipf``: drawn, prefix i with a weight of 1 / i^``skew``."""
    skew: Annotated[float, Field(ge=0, le=10)] = 1.0
    question_tokens: Annotated[int, Field(ge=8)] = 128
    output_tokens: Annotated[int, Field(ge=1)] = 4
    requests: Annotated[int, Field(ge=1, le=100_000)] = 40
    """Measured requests per cell and arm."""
    warmup: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Requests before them that fill the tiers; checked, not counted."""
    idle: Annotated[Seconds, Field(ge=0, le=3600)] = 0.0
    """Pause before each request."""
    deadline: Annotated[Seconds, Field(gt=0, le=3600)] = 30.0
    """Every request ends by then, with an answer or a clear error."""
