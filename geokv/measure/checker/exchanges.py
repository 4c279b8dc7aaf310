"""Requests of a drill with their answers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from geokv.measure.checker.history import Event, History

TIERS = frozenset({"", "device", "dram", "disk"})
"""Where a chunk comes from that comes from no other site."""


@dataclass(frozen=True)
class Exchange:
    """One request as its client sent it, and every answer that came.

    Attributes:
        recorded: whether the site could be asked what it had given; one that ends right after
            its answer cannot.
        handed: chunks from other sites that the site noted as handed over for it.
    """

    request: Event
    answers: tuple[Event, ...]
    recorded: bool = True
    handed: int = 0

    @property
    def request_id(self) -> str:
        """As the client named it."""
        return str(self.request["request_id"])

    @property
    def site(self) -> str:
        """That it was sent to."""
        return str(self.request["site"])

    @property
    def tenant(self) -> str:
        """Whose key it carried; empty where the history does not say."""
        return str(self.request.get("tenant", ""))

    @property
    def sent_ns(self) -> int:
        """When the client sent it."""
        return int(self.request["t_ns"])

    @property
    def answer(self) -> Event | None:
        """The first; a second one is a fault of its own."""
        return self.answers[0] if self.answers else None

    @property
    def ok(self) -> bool:
        """Whether the first answer was whole."""
        return bool(self.answers) and self.answers[0]["status"] == "ok"

    @property
    def ttft_ns(self) -> int | None:
        """From sending to the first token; None without a whole answer."""
        value = self.answers[0].get("ttft_ns") if self.ok else None
        return int(value) if value is not None else None

    @property
    def first_ns(self) -> int | None:
        """When the first token came; None without a whole answer."""
        value = self.answers[0].get("first_ns") if self.ok else None
        return int(value) if value is not None else None

    @property
    def cached_tokens(self) -> int:
        """Of the prompt, as the answer said; 0 without one."""
        return int(self.answers[0].get("cached_tokens") or 0) if self.answers else 0

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt; 0 where the history does not say."""
        return int(self.request.get("prompt_tokens") or 0)

    @property
    def chunks_remote(self) -> int:
        """As the site said when it was asked, else as it had noted before."""
        if not self.recorded:
            return self.handed
        return int(self.answers[0].get("chunks_remote") or 0) if self.answers else 0


def exchanges(history: History) -> list[Exchange]:
    """In the order of sending."""
    answers: dict[str, list[Event]] = defaultdict(list)
    for event in history.of("answer"):
        answers[event["request_id"]].append(event)
    unrecorded = {event["request_id"] for event in history.of("no-record")}
    handed = Counter(
        event["request_id"] for event in history.of("use") if event["source"] not in TIERS
    )
    return [
        Exchange(
            event,
            tuple(answers.get(event["request_id"], ())),
            event["request_id"] not in unrecorded,
            handed[event["request_id"]],
        )
        for event in history.of("request")
    ]


def ttfts_of(asked: Iterable[Exchange]) -> list[int]:
    """Times to first token of the answered, ns, in the order given."""
    return [one.ttft_ns for one in asked if one.ttft_ns is not None]


def prompt_name(event: Event) -> object:
    """What a prompt is known by: its text, number or token ids, as something to look up."""
    prompt = event["prompt"]
    return tuple(prompt) if isinstance(prompt, list) else prompt
