"""Which beginnings of prompts have been sent, and by which request first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from geokv.measure.checker.history import Event

STEP_TOKENS = 16
"""Caches share whole blocks; what is shorter need not be told apart."""


class Prefixes:
    """Who has sent which beginnings of prompts; of each the first two requests are kept."""

    def __init__(self) -> None:
        self._first: dict[int, list[Event]] = {}

    @staticmethod
    def of(prompt: Sequence[int]) -> list[int]:
        """Names of a prompt's own beginnings: number i is that of ``i * STEP_TOKENS`` tokens.

        Hashes of integers, so equal in every process.
        """
        names = [0]
        ends = range(0, len(prompt) + 1, STEP_TOKENS)
        for start, end in pairwise(ends):
            names.append(hash((names[-1], *prompt[start:end])))
        return names

    def add(self, names: Sequence[int], request: Event) -> None:
        """Requests come in the order of their sending."""
        for name in names[1:]:
            holders = self._first.setdefault(name, [])
            if len(holders) < 2:
                holders.append(request)

    def holder(self, names: Sequence[int], tokens: int, before_ns: int, but: Event) -> Event | None:
        """The first request but one that began with the same ``tokens``, in whole steps, and
        was sent before."""
        steps = min(tokens // STEP_TOKENS, len(names) - 1)
        holders = self._first.get(names[steps], ()) if steps else ()
        return next((one for one in holders if one is not but and one["t_ns"] < before_ns), None)
