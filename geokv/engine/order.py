"""Who of those that wait goes next: one rule per class, chosen by name.

A rule sees candidates in order of arrival and names one. It is asked only when there
may be a place, and the one it names is never overtaken: if there is no room for it yet,
everybody waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from geokv.errors import ConfigError


class Candidate(Protocol):
    """A waiting answer, as a rule sees it."""

    @property
    def tokens(self) -> list[int]:
        """All its tokens so far, the prompt's first."""
        ...

    def cached_tokens(self) -> int:
        """Tokens of it that are cached on the device now."""
        ...


class Order(Protocol):
    """A rule."""

    def pick(self, waiting: Sequence[Candidate]) -> int:
        """Index of the one that goes next; ``waiting`` is not empty."""
        ...


class Fcfs:
    """First come, first served."""

    def pick(self, waiting: Sequence[Candidate]) -> int:
        """The first."""
        return 0


class LongestPrefix:
    """The one with most of its prompt cached, among the first ``window``.

    For a batch that is known at the beginning this is a depth-first walk of the tree of
    prompts and computes every shared prefix once (SGLang, NeurIPS 2024, theorem 3.1). A
    stream of hits can starve a miss; SGLang bounds the search likewise.
    """

    def __init__(self, window: int = 128) -> None:
        self._window = window

    def pick(self, waiting: Sequence[Candidate]) -> int:
        """The longest cached prefix; the earliest of equals."""
        count = min(self._window, len(waiting))
        return max(range(count), key=lambda i: (waiting[i].cached_tokens(), -i))


ORDERS: dict[str, type[Fcfs] | type[LongestPrefix]] = {
    "fcfs": Fcfs,
    "longest-prefix": LongestPrefix,
}


def make_order(name: str) -> Order:
    """The rule called ``name``.

    Raises:
        ConfigError: there is none.
    """
    if name not in ORDERS:
        raise ConfigError(f"unknown order {name!r}", f"known: {', '.join(ORDERS)}")
    return ORDERS[name]()
