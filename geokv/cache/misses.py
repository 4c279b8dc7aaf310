"""Counted misses of one site."""

from __future__ import annotations

from collections import Counter

from geokv.cache.history import History


class Misses:
    """Why something was not had, by cause, and in the history with the reason.

    Attributes:
        total: everything that was counted here.
    """

    def __init__(self, history: History) -> None:
        self.total: Counter[str] = Counter()
        self._history = history

    def count(
        self,
        cause: str,
        why: str,
        key: bytes | None = None,
        request_id: str = "",
        also: Counter[str] | None = None,
    ) -> None:
        """One miss; ``also`` counts those of one request."""
        if also is not None:
            also[cause] += 1
        self.total[cause] += 1
        self._history.note("miss", key, request_id=request_id, cause=cause, reason=why)
