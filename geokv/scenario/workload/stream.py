"""Requests that keep coming at a rate of their own, whatever happens: what a drill asks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from geokv.config import Strict
from geokv.units import Seconds


class Stream(Strict):
    """``providers`` have computed every prefix before; questions behind them come at ``askers``.

    Open loop: a request is sent when it is due, however many are still unanswered. Which site,
    which prefix and when are drawn from the seed, so that a drill is the same each time.
    """

    kind: Literal["stream"]
    askers: Annotated[dict[str, Annotated[float, Field(gt=0)]], Field(min_length=1)]
    """Site → its share of the requests (any positive weights); each is asked at its own door."""
    providers: Annotated[list[str], Field(min_length=1)]
    """Sites that have computed every prefix before the drill begins."""
    tenants: Annotated[int, Field(ge=1, le=64)] = 1
    """Request i is tenant i modulo this."""
    texts: Literal["own", "same"] = "own"
    """Whether each tenant has prefixes of its own, or all have the very same ones, which must
    not be shared all the same."""
    prefixes: Annotated[int, Field(ge=1, le=4096)] = 4
    """Per tenant."""
    prefix_tokens: Annotated[int, Field(gt=0)] = 1024
    order: Literal["zipf", "round-robin"] = "zipf"
    """``zipf``: drawn, prefix i with a weight of 1 / i^``skew``."""
    skew: Annotated[float, Field(ge=0, le=10)] = 1.0
    question_tokens: Annotated[int, Field(ge=8)] = 64
    output_tokens: Annotated[int, Field(ge=1)] = 4
    requests: Annotated[int, Field(ge=1, le=100_000)] = 60
    arrivals: Literal["constant", "poisson"] = "constant"
    rate: Annotated[float, Field(gt=0, le=100_000)] = 20.0
    """Requests per second."""
    cold: Literal["forget", "keep"] = "forget"
    """``forget``: an asker's device and DRAM are emptied before each of its requests, so that
    each must fetch; ``keep``: caches work as in production."""
    deadline: Annotated[Seconds, Field(gt=0, le=3600)] = 5.0
    """Every request ends by then, with an answer or a clear error."""
    quiesce: Annotated[Seconds, Field(ge=0, le=3600)] = 3.0
    """How long everything is left alone after the last answer, with all faults healed, before
    the books are looked at."""

    @model_validator(mode="after")
    def _something_to_share(self) -> Stream:
        if len(set(self.providers)) != len(self.providers):
            raise ValueError("providers: a site is listed twice")
        if set(self.askers) == set(self.providers) and len(self.providers) == 1:
            raise ValueError("askers: nothing is shared where the only asker is the only provider")
        return self

    @property
    def provider(self) -> str:
        """The first provider: one end of the path that a cell is labelled with."""
        return self.providers[0]

    @property
    def asker(self) -> str:
        """The first asker that is not that provider: the other end."""
        return next(site for site in [*self.askers, *self.providers] if site != self.provider)

    @property
    def warmup(self) -> int:
        """None: caches are warmed by the providers, connections by the runner."""
        return 0

    @property
    def idle(self) -> float:
        """None: requests come when they are due."""
        return 0.0
