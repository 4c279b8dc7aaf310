"""Requests of a file, replayed: of a run of ours, or one of the public traces."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field, model_validator

from geokv.config import Strict
from geokv.scenario.workload.document import TextFile
from geokv.scenario.workload.trace_lines import TraceLine, in_step, read_lines, tenant_numbers
from geokv.units import NS_PER_S, Seconds

_MOST_TENANTS = 64


class Trace(Strict):
    """Every line is a request that is sent when it is due, whatever became of those before.

    Prompts are made of the lines' blocks: equal blocks behind equal beginnings are equal tokens,
    and no others. Lines that prepare caches and lead the file are asked one after the other
    before the stream begins.
    """

    kind: Literal["trace"]
    file: TextFile
    """JSON lines, also ``.gz``; the path begins where the scenario's file lies."""
    block_tokens: Annotated[int, Field(ge=1, le=65536)] = 512
    """Of lines that do not say theirs; Mooncake's traces have 512."""
    cell: Annotated[int, Field(ge=0)] = 0
    """Which cell of a run's trace; lines that name none are cell 0."""
    skip: Annotated[int, Field(ge=0)] = 0
    """Lines left out at the beginning."""
    take: Annotated[int, Field(ge=1)] | None = None
    """At most so many lines after them; all when unset."""
    askers: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Site → its share of the lines that name no site; lines of one session stay together."""
    speed: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """How many times faster requests come than written."""
    spread: Annotated[Seconds, Field(ge=0, le=60)] = 0.0
    """Over which requests of one and the same time are spread, at most until the next time:
    Mooncake's conversations tick every 3 s."""
    longest_tokens: Annotated[int, Field(ge=1)] | None = None
    """Prompts are cut to so many tokens."""
    answers_at_most: Annotated[int, Field(ge=1)] | None = None
    """Answers are cut to so many tokens."""
    deadline: Annotated[Seconds, Field(gt=0, le=3600)] = 30.0
    """Every request ends by then, with an answer or a clear error."""
    quiesce: Annotated[Seconds, Field(ge=0, le=3600)] = 3.0
    """How long everything is left alone after the last answer before the books are looked at."""

    @model_validator(mode="after")
    def _readable(self) -> Trace:
        try:
            lines = self.lines
        except ValueError as error:
            raise ValueError(f"file: {self.file.file}: {error}") from None
        if not self.stream:
            raise ValueError(f"file: {self.file.file}: has only requests that prepare")
        nowhere = sum(line.site is None for line in lines)
        if nowhere and not self.askers:
            raise ValueError(f"askers: {nowhere} of {len(lines)} lines name no site; say who asks")
        if self.tenants > _MOST_TENANTS:
            raise ValueError(f"file: has {self.tenants} tenants, at most {_MOST_TENANTS} can be")
        return self

    @property
    def lines(self) -> tuple[TraceLine, ...]:
        """In the order they come."""
        return read_lines(self.file.content or "", self.block_tokens)

    @property
    def leading(self) -> tuple[TraceLine, ...]:
        """Those that prepare caches before the stream begins."""
        lines = self.lines
        count = next((n for n, line in enumerate(lines) if not line.prepares), len(lines))
        return lines[:count]

    @property
    def stream(self) -> tuple[TraceLine, ...]:
        """All others."""
        return self.lines[len(self.leading) :]

    @property
    def due_ns(self) -> list[int]:
        """When each line of the stream is due, from the first on."""
        return in_step(self.stream, self.speed, round(self.spread * NS_PER_S))

    @property
    def requests(self) -> int:
        """Lines of the stream."""
        return len(self.stream)

    @property
    def tenants(self) -> int:
        """How many tenants ask."""
        return max(tenant_numbers(self.lines).values(), default=0) + 1

    @property
    def output_tokens(self) -> int:
        """Of the longest answer."""
        return max(self.answer_tokens(line) for line in self.lines)

    def prompt_tokens(self, line: TraceLine) -> int:
        """Length of its prompt here."""
        return min(line.input_length, self.longest_tokens or line.input_length)

    def answer_tokens(self, line: TraceLine) -> int:
        """Length of its answer here; what generated nothing still asks for one token."""
        return max(1, min(line.output_length, self.answers_at_most or line.output_length))

    @property
    def asked(self) -> list[str]:
        """Sites that may be asked, in the order they are named."""
        named = [line.site for line in self.lines if line.site is not None]
        return list(dict.fromkeys([*named, *self.askers]))

    @property
    def sources(self) -> list[str]:
        """Sites that may have what others fetch."""
        return self.asked

    @property
    def prepared_at(self) -> list[str]:
        """Sites that compute something before the stream begins."""
        named = [line.site for line in self.leading if line.site is not None]
        return list(dict.fromkeys(named))

    @property
    def fetching(self) -> list[str]:
        """Sites whose requests may fetch."""
        return self.asked

    @property
    def asker(self) -> str:
        """The site that is asked most: one end of the path that a cell is labelled with."""
        counts = Counter(line.site for line in self.stream if line.site is not None)
        counts.update({site: round(share * 1e6) for site, share in self.askers.items()})
        return counts.most_common(1)[0][0]

    @property
    def provider(self) -> str:
        """The other end: another site that is asked, where there is one."""
        return next((site for site in self.asked if site != self.asker), self.asker)

    @property
    def warmup(self) -> int:
        """None: lines that warm up are part of the stream."""
        return 0

    @property
    def idle(self) -> float:
        """None: requests come when they are due."""
        return 0.0
