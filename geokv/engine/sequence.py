"""One request's tokens and the blocks that hold their KV."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from geokv.engine.prefix import PrefixNode


@dataclass(eq=False)
class Sequence:
    """State between :meth:`Engine.open` and :meth:`Engine.close`; changed by the engine only.

    ``blocks`` covers, in order: the ``cached_tokens`` taken from the prefix tree or
    committed from outside, tokens computed here, tokens reserved and not yet
    committed, and room for tokens about to be computed.
    """

    tokens: list[int]
    root: bytes
    prompt_tokens: int
    blocks: list[int] = field(default_factory=list)
    #: Tokens whose KV is in the pool and valid.
    computed_tokens: int = 0
    #: Of those, tokens that came with :meth:`Engine.open`, from this worker's pool.
    device_tokens: int = 0
    #: Of those, tokens committed from outside.
    committed_tokens: int = 0
    #: Tokens whose blocks were handed out to be filled.
    reserved_tokens: int = 0
    #: float32 ``[vocab]`` after the last computed token, None before prefill.
    logits: torch.Tensor | None = None
    closed: bool = False
    #: Deepest prefix node this sequence holds locked.
    locked: PrefixNode | None = None
    #: The device is working on it; a close waits for that to end.
    busy: bool = False
    keep_on_close: bool | None = None

    @property
    def cached_tokens(self) -> int:
        """Tokens whose KV was not computed by this sequence: device hits and commits."""
        return self.device_tokens + self.committed_tokens

    @property
    def remaining_tokens(self) -> int:
        """Tokens whose KV is still to be computed."""
        return len(self.tokens) - self.computed_tokens
