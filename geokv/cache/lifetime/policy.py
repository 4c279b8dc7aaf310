"""What a tier asks of an eviction policy.

The tier tells the policy what happens to its keys and asks whom to give up. Whether
a key may go (pins, leases) is the tier's business alone, so no policy can break it.
Policies know keys and nothing else: they run without a byte of KV.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

MayGo = Callable[[bytes], bool]
"""Whether a key may go now: nothing reads its chunk, and no quota or lease keeps it."""


class EvictionPolicy(Protocol):
    """Orders the complete chunks of one tier; never sees pins or memory."""

    def added(self, key: bytes) -> None:
        """``key`` became readable."""

    def used(self, key: bytes) -> None:
        """``key`` was read."""

    def chained(self, keys: Sequence[bytes]) -> None:
        """``keys`` were added or used together as one prefix, its head first. Without
        its head a tail is of no use, so of equals the tail should go first."""

    def removed(self, key: bytes) -> None:
        """``key`` left the tier for another reason than room."""

    def evict(self, coming: bytes, may_go: MayGo) -> bytes | None:
        """Choose a key that makes room for ``coming``, and forget it.

        Returns:
            ``None`` if none may go; then nothing changed that anybody could see.
        """

    def keys(self) -> Iterator[bytes]:
        """All keys the policy believes to be in the tier, in no special order."""
