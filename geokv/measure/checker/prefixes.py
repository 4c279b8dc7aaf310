"""Which beginnings of prompts have been sent, and by which request first."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise

from geokv.measure.checker.history import Event

STEP_TOKENS = 16
"""Caches share whole blocks; what is shorter need not be told apart."""


class Prefixes:
    """Who has sent which beginnings of prompts; of each the first two requests are kept."""

    def __init__(self) -> None:
        self._first: dict[Hashable, list[Event]] = {}

    @staticmethod
    def of(request: Event) -> list[Hashable]:
        """Names of the beginnings of its prompt: number i is that of ``i * STEP_TOKENS`` tokens.

        A prompt is its token ids; or a name, with that of the ``prefix`` that it has in common
        with others and how many tokens that is, or with names of its ``blocks``. Empty where
        nothing is known.
        """
        prompt = request.get("prompt")
        if isinstance(prompt, list):
            names: list[Hashable] = [0]
            for start, end in pairwise(range(0, len(prompt) + 1, STEP_TOKENS)):
                names.append(hash((names[-1], *prompt[start:end])))
            return names
        if "prefix" not in request:
            return _of_blocks(request)
        common = request["prefix_tokens"] // STEP_TOKENS
        whole = max(common, request.get("prompt_tokens", 0) // STEP_TOKENS)
        of_prefix: list[Hashable] = [("prefix", request["prefix"], i) for i in range(common + 1)]
        return of_prefix + [("prompt", prompt, i) for i in range(common + 1, whole + 1)]

    def add(self, names: Sequence[Hashable], request: Event) -> None:
        """Requests come in the order of their sending."""
        for name in names[1:]:
            holders = self._first.setdefault(name, [])
            if len(holders) < 2:
                holders.append(request)

    def holder(
        self, names: Sequence[Hashable], tokens: int, before_ns: int, but: Event
    ) -> Event | None:
        """The first request but one that began with the same ``tokens``, in whole steps, and
        was sent before."""
        steps = min(tokens // STEP_TOKENS, len(names) - 1)
        holders = self._first.get(names[steps], ()) if steps > 0 else ()
        return next((one for one in holders if one is not but and one["t_ns"] < before_ns), None)


def _of_blocks(request: Event) -> list[Hashable]:
    """Each block's name stands for all before it too."""
    size, blocks = request.get("block_tokens", 0), request.get("blocks", ())
    if not size or STEP_TOKENS % size:
        return []
    per_step = STEP_TOKENS // size
    whole = request.get("prompt_tokens", 0) // STEP_TOKENS
    ends = blocks[per_step - 1 : whole * per_step : per_step]
    return [0, *(("block", name) for name in ends)]
