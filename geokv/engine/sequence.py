"""One sequence's tokens and the blocks that hold their KV."""

from __future__ import annotations

from dataclasses import dataclass, field

from geokv.engine.arrival import Arrival
from geokv.engine.prefix import PrefixNode


@dataclass(eq=False)
class Sequence:
    """State between :meth:`Engine.open` and :meth:`Engine.close`; changed by the engine only.

    ``blocks`` covers, in order: tokens whose KV is valid (``computed_tokens``), tokens
    reserved to be filled from outside (of which an ``arrival`` promises some or all), and
    room for tokens about to be computed.
    """

    tokens: list[int]
    root: bytes
    prompt_tokens: int
    blocks: list[int] = field(default_factory=list)
    #: Tokens whose KV is in the pool and valid.
    computed_tokens: int = 0
    #: Tokens that came with :meth:`Engine.open`, from this worker's pool.
    device_tokens: int = 0
    #: Tokens committed from outside.
    committed_tokens: int = 0
    #: Tokens whose blocks were handed out to be filled.
    reserved_tokens: int = 0
    #: What of them comes layer group by layer group and may be computed on already.
    arrival: Arrival | None = None
    closed: bool = False
    #: Deepest prefix node this sequence holds locked.
    locked: PrefixNode | None = None
    #: The device is working on it; a close waits for that to end.
    busy: bool = False
    keep_on_close: bool | None = None

    @property
    def cached_tokens(self) -> int:
        """Tokens whose KV was there when the sequence began: device hits and commits."""
        return self.device_tokens + self.committed_tokens

    @property
    def remaining_tokens(self) -> int:
        """Tokens whose KV is still to be computed."""
        return len(self.tokens) - self.next_token

    @property
    def next_token(self) -> int:
        """Where computing goes on: behind what is valid or promised."""
        return self.computed_tokens + (self.arrival.tokens if self.arrival else 0)


@dataclass(frozen=True)
class Slice:
    """The next ``tokens`` tokens of a sequence, to be computed in one step."""

    seq: Sequence
    tokens: int

    @property
    def start(self) -> int:
        """Tokens before them."""
        return self.seq.next_token

    @property
    def is_last(self) -> bool:
        """Whether nothing is left to compute afterwards: logits are wanted."""
        return self.tokens == self.seq.remaining_tokens

    @property
    def is_decode(self) -> bool:
        """One token on top of others: a decode to the device, whatever it continues."""
        return self.tokens == 1 and self.start > 0
