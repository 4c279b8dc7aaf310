"""One answer, token by token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

from geokv.engine.engine import Engine
from geokv.engine.sampling import Sampler, SamplingParams
from geokv.engine.sequence import Sequence
from geokv.engine.tokenizer import Detokenizer, Tokenizer

Finish = Literal["stop", "length"]


@dataclass(frozen=True)
class TokenLogprob:
    """Natural log probability of a token, from the model's own distribution.

    Temperature, top-p and top-k do not enter it.

    Args:
        top: ``(token, logprob)`` of the most likely tokens, as many as were asked for.
    """

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class TokenEvent:
    """One generated token.

    Args:
        index: 0 for the first token of the answer.
        text: text that became certain with this token (empty without a tokenizer).
        finish: set on the last event; ``stop`` (end token or stop string) or ``length``.
        choice: which of ``n`` answers it belongs to.
        logprob: where it was asked for.
    """

    token: int
    index: int
    text: str
    finish: Finish | None
    choice: int = 0
    logprob: TokenLogprob | None = None


async def generate(
    engine: Engine,
    seq: Sequence,
    params: SamplingParams,
    tokenizer: Tokenizer | None = None,
) -> AsyncIterator[TokenEvent]:
    """Prefill what is left (unless the caller did) and decode until a stop.

    The caller closes the sequence, also after an error or when it stops listening.
    An end token is the last event and adds no text.

    Raises:
        EngineError: as :meth:`Engine.prefill` and :meth:`Engine.decode`.
    """
    logits = seq.logits if seq.logits is not None else await engine.prefill(seq)
    sampler = Sampler(params)
    ends = set(params.stop_token_ids)
    if tokenizer is not None and not params.ignore_eos:
        ends |= tokenizer.stop_ids
    text = _Text(tokenizer.detokenizer() if tokenizer is not None else None, params.stop)
    room = engine.model.config.max_tokens - len(seq.tokens)
    for index in range(params.max_tokens):
        token = sampler.pick(logits)
        if token in ends:
            yield TokenEvent(token, index, text.finish(), "stop")
            return
        piece, stopped = text.push(token)
        if stopped:
            yield TokenEvent(token, index, piece, "stop")
            return
        if index + 1 == min(params.max_tokens, room):
            yield TokenEvent(token, index, piece + text.finish(), "length")
            return
        yield TokenEvent(token, index, piece, None)
        logits = await engine.decode(seq, token)


class _Text:
    """Detokenised text with everything held back that might begin a stop string."""

    def __init__(self, detokenizer: Detokenizer | None, stops: tuple[str, ...]) -> None:
        self._detokenizer = detokenizer
        self._stops = stops
        self._held = ""

    def push(self, token: int) -> tuple[str, bool]:
        """Text that can be shown, and whether a stop string was reached (it is cut off)."""
        if self._detokenizer is None:
            return "", False
        self._held += self._detokenizer.push(token)
        return self._show()

    def finish(self) -> str:
        """All that is left, up to a stop string."""
        if self._detokenizer is None:
            return ""
        self._held += self._detokenizer.finish()
        shown, _ = self._show()
        rest, self._held = self._held, ""
        return shown + rest

    def _show(self) -> tuple[str, bool]:
        found = [self._held.find(stop) for stop in self._stops if stop in self._held]
        if found:
            shown, self._held = self._held[: min(found)], ""
            return shown, True
        keep = max((self._overlap(stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown, False

    def _overlap(self, stop: str) -> int:
        """Length of the longest end of the held text that begins ``stop``."""
        longest = min(len(stop) - 1, len(self._held))
        return next((n for n in range(longest, 0, -1) if self._held.endswith(stop[:n])), 0)
