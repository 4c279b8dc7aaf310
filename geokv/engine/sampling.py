"""From logits to the next token."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from geokv.errors import ComputeError, EngineError


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are chosen and when to stop; names as in OpenAI's API.

    Args:
        temperature: 0 is greedy and ignores ``top_p``, ``top_k`` and ``seed``.
        top_p: keep the smallest set of tokens whose probabilities reach this share.
        top_k: keep this many most likely tokens; 0 keeps all.
        seed: of the request's own generator; the same seed gives the same tokens.
        stop_token_ids: end after one of these, in addition to the tokenizer's own.
        stop: end before one of these strings; needs a tokenizer.
        ignore_eos: go on past the tokenizer's end tokens.
        n: answers to the same prompt; answer ``i`` draws with ``seed + i``.
        logprobs: None for none, else how many most likely tokens to report with each.

    Raises:
        EngineError: a value out of range.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    logprobs: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise EngineError(f"max_tokens must be ≥ 1, got {self.max_tokens}")
        if not 0 <= self.temperature <= 100:
            raise EngineError(f"temperature must be in 0 … 100, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise EngineError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k < 0:
            raise EngineError(f"top_k must be ≥ 0, got {self.top_k}")
        if self.n < 1:
            raise EngineError(f"n must be ≥ 1, got {self.n}")
        if self.logprobs is not None and self.logprobs < 0:
            raise EngineError(f"logprobs must be ≥ 0, got {self.logprobs}")
        if any(not text for text in self.stop):
            raise EngineError("a stop string is empty")


class Sampler:
    """Draws the tokens of one answer, from a generator of its own.

    Args:
        choice: which of ``n`` answers; added to the seed.
    """

    def __init__(self, params: SamplingParams, choice: int = 0) -> None:
        self._params = params
        self._random = torch.Generator().manual_seed(params.seed + choice)

    def pick(self, logits: torch.Tensor) -> int:
        """The next token from float32 ``[vocab]``.

        Raises:
            ComputeError: the logits are not finite.
        """
        if not torch.isfinite(logits).all():
            raise ComputeError("the model's logits are not finite: weights or KV are damaged")
        if self._params.temperature == 0:
            return int(logits.argmax())
        probabilities = self.probabilities(logits).cpu()
        return int(torch.multinomial(probabilities, 1, generator=self._random))

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """What is drawn from: float32 ``[vocab]``, zero where top-k or top-p cut."""
        scaled = logits / self._params.temperature if self._params.temperature else logits
        values, order = torch.sort(scaled, descending=True, stable=True)
        if self._params.top_k:
            values[self._params.top_k :] = -torch.inf
        shares = torch.softmax(values, dim=0)
        # A token stays when those before it have not reached top_p yet.
        shares[shares.cumsum(0) - shares >= self._params.top_p] = 0.0
        return torch.zeros_like(shares).scatter_(0, order, shares / shares.sum())
