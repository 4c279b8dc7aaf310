"""What a tier asks of an eviction policy.

The tier tells the policy what happens to its keys and asks for an order. Whether a
key may go (pins, leases) is the tier's business alone, so no policy can break it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class EvictionPolicy(Protocol):
    """Orders the complete chunks of one tier; never sees pins or memory."""

    def added(self, key: bytes) -> None:
        """``key`` became readable."""

    def used(self, key: bytes) -> None:
        """``key`` was read."""

    def removed(self, key: bytes) -> None:
        """``key`` left the tier, for whatever reason."""

    def victims(self) -> Iterator[bytes]:
        """All keys, first the one that should go first. The tier does not change
        while it iterates."""
