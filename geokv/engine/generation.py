"""One answer, token by token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from geokv.engine.sampling import Sampler, SamplingParams
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


class Generation:
    """The sampling side of one answer: from rows of logits to events.

    Args:
        limit: tokens the answer may have at most, by model and pool.
        choice: which of ``n`` answers; it draws with ``seed + choice``.
    """

    def __init__(
        self, params: SamplingParams, tokenizer: Tokenizer | None, limit: int, choice: int = 0
    ) -> None:
        self.choice = choice
        self.finish: Finish | None = None
        self._params = params
        self._sampler = Sampler(params, choice)
        self._ends = set(params.stop_token_ids)
        if tokenizer is not None and not params.ignore_eos:
            self._ends |= tokenizer.stop_ids
        self._text = _Text(tokenizer.detokenizer() if tokenizer is not None else None, params.stop)
        self._limit = min(params.max_tokens, limit)
        self._count = 0

    @property
    def is_greedy(self) -> bool:
        """Whether the largest logit decides."""
        return self._params.temperature == 0

    def take(self, logits: torch.Tensor, best: int | None = None) -> TokenEvent:
        """Choose the next token; after ``finish`` is set there is none.

        An end token is the last event and adds no text.

        Args:
            logits: float32 ``[vocab]``.
            best: index of the largest, where the caller has it already.

        Raises:
            ComputeError: the logits are not finite.
        """
        token = best if best is not None and self.is_greedy else self._sampler.pick(logits)
        logprob = None
        if self._params.logprobs is not None:
            logprob = token_logprob(logits, token, self._params.logprobs)
        index = self._count
        self._count += 1
        if token in self._ends:
            self.finish = "stop"
            text = self._text.finish()
        else:
            text, stopped = self._text.push(token)
            if stopped:
                self.finish = "stop"
            elif self._count >= self._limit:
                self.finish = "length"
                text += self._text.finish()
        return TokenEvent(token, index, text, self.finish, self.choice, logprob)


def token_logprob(logits: torch.Tensor, token: int, top: int) -> TokenLogprob:
    """Of ``token`` and of the ``top`` most likely ones, from float32 ``[vocab]``."""
    shares = torch.log_softmax(logits, dim=0)
    values, ids = shares.topk(min(top, len(shares)))
    pairs = zip(ids.tolist(), values.tolist(), strict=True)
    return TokenLogprob(float(shares[token]), tuple(pairs))


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
