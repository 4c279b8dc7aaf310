"""One long prefix, many questions behind it, one request at a time."""

from typing import Annotated, Literal

from pydantic import Field

from geokv.config import Strict
from geokv.units import Seconds


class SharedPrefix(Strict):
    """``provider`` has computed the prefix before; ``asker`` serves the questions.

    Every arm sees the same questions, and no two questions share their first block.
    """

    kind: Literal["shared-prefix"]
    provider: str
    asker: str
    prefix_tokens: Annotated[int, Field(gt=0)]
    question_tokens: Annotated[int, Field(ge=8)] = 128
    """At least 8: a question's first ids carry its number, so that none repeats."""
    output_tokens: Annotated[int, Field(ge=1)] = 4
    requests: Annotated[int, Field(ge=1, le=100_000)] = 5
    """Measured requests per cell and arm."""
    warmup: Annotated[int, Field(ge=0, le=1000)] = 1
    """Requests before them that are checked but not counted."""
    idle: Annotated[Seconds, Field(ge=0, le=3600)] = 0.0
    """Pause before each request: long enough, and a connection forgets its window where
    ``links.*.idle_restart`` is on."""
    deadline: Annotated[Seconds, Field(gt=0, le=3600)] = 30.0
    """Every request ends by then, with an answer or a clear error."""
