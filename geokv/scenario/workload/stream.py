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
    probe: Literal["recompute", "other-tenant"] | None = None
    """Two kinds of requests to be compared, half of each, shuffled by the seed. ``recompute``:
    half are behind prefixes that nobody has had and must be computed, in the same weather as the
    others that fetch. ``other-tenant``: the first tenant asks each prefix once and thereby has it
    everywhere; then the second asks each of them too, and as many that nobody has had."""
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

    @model_validator(mode="after")
    def _as_the_probe_needs(self) -> Stream:
        if self.probe == "recompute" and self.requests % 2:
            raise ValueError(f"requests: half of them are a probe's, got {self.requests}")
        if self.probe != "other-tenant":
            return self
        if (self.tenants, self.texts, self.cold) != (2, "same", "keep"):
            raise ValueError("probe: other-tenant needs tenants 2, texts same and cold keep")
        if self.requests != 3 * self.prefixes:
            raise ValueError(
                "requests: of probe other-tenant must be three times the prefixes, "
                f"{3 * self.prefixes}, got {self.requests}"
            )
        return self

    @property
    def prepared_for(self) -> int:
        """How many tenants, from the first on, have had their prefixes computed before."""
        return 1 if self.probe == "other-tenant" else self.tenants

    @property
    def provider(self) -> str:
        """The first provider: one end of the path that a cell is labelled with."""
        return self.providers[0]

    @property
    def asker(self) -> str:
        """The first asker that is not that provider: the other end."""
        return next(site for site in [*self.askers, *self.providers] if site != self.provider)

    @property
    def asked(self) -> list[str]:
        """Sites that may be asked, while preparing too."""
        return list(dict.fromkeys([*self.askers, *self.providers]))

    @property
    def prepared_at(self) -> list[str]:
        """Sites that compute something before the stream begins."""
        return self.providers

    @property
    def fetching(self) -> list[str]:
        """Sites whose requests may fetch."""
        return list(self.askers)

    @property
    def sources(self) -> list[str]:
        """Sites that have what others fetch."""
        return self.providers

    @property
    def warmup(self) -> int:
        """None: caches are warmed by the providers, connections by the runner."""
        return 0

    @property
    def idle(self) -> float:
        """None: requests come when they are due."""
        return 0.0
