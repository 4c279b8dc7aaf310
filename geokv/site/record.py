"""What a site remembers of one request: when each step ended, what was reused, what it cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from geokv.engine.generation import TokenEvent

Source = Literal["none", "device", "dram", "disk", "remote"]
CLIENT_GONE = "the client went away"
"""The error of a request that nobody waited for any more."""


@dataclass
class RequestRecord:
    """Stamps are monotonic ns, each the end of one step and the beginning of the next.

    A step that did not happen ends when the one before it ended, so the spans between
    neighbouring stamps always add up to the whole.
    """

    request_id: str
    tenant: str
    prompt_tokens: int
    started_ns: int
    admitted_ns: int = 0
    looked_up_ns: int = 0
    last_byte_ns: int = 0
    usable_ns: int = 0
    loaded_ns: int = 0
    scheduled_ns: int = 0
    prefilled_ns: int = 0
    finished_ns: int = 0
    cached_tokens: int = 0
    device_tokens: int = 0
    chunks_local: int = 0
    chunks_disk: int = 0
    """Of ``chunks_local``, those that came up from the disk."""
    chunks_remote: int = 0
    chunks_by_site: dict[str, int] = field(default_factory=dict)
    """``chunks_remote`` by the site that sent them."""
    wire_bytes: int = 0
    misses: Counter[str] = field(default_factory=Counter)
    output_ids: list[int] = field(default_factory=list)
    """Tokens of the first of ``n`` answers."""
    token_ns: list[int] = field(default_factory=list)
    """When each of them was ready."""
    completion_tokens: int = 0
    """Tokens of all answers."""
    finish: list[str] = field(default_factory=list)
    """Why each answer ended."""
    preemptions: int = 0
    error: str | None = None

    @property
    def source(self) -> Source:
        """The farthest tier that gave something."""
        if self.chunks_remote:
            return "remote"
        if self.chunks_disk:
            return "disk"
        if self.chunks_local:
            return "dram"
        return "device" if self.device_tokens else "none"

    def take(self, event: TokenEvent, at_ns: int) -> None:
        """Count one token."""
        self.completion_tokens += 1
        if event.choice == 0:
            self.output_ids.append(event.token)
            self.token_ns.append(at_ns)
        if event.finish is not None:
            self.finish.append(event.finish)

    def spans_ns(self, sent_ns: int, first_ns: int) -> dict[str, int]:
        """The additive split of a client's TTFT.

        Queueing is the wait for a place and blocks, and the wait for the first step.

        Args:
            sent_ns, first_ns: the client's own stamps (same clock).
        """
        return {
            "queue_ns": self.admitted_ns - sent_ns + self.scheduled_ns - self.loaded_ns,
            "lookup_ns": self.looked_up_ns - self.admitted_ns,
            "fetch_ns": self.last_byte_ns - self.looked_up_ns,
            "completion_ns": self.usable_ns - self.last_byte_ns,
            "load_ns": self.loaded_ns - self.usable_ns,
            "prefill_ns": self.prefilled_ns - self.scheduled_ns,
            "first_byte_ns": first_ns - self.prefilled_ns,
        }

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready, with the derived source."""
        return {**asdict(self), "misses": dict(self.misses), "source": self.source}
