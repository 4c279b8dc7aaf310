"""How much of a tier one tenant may have, so that a busy one cannot push the others out."""

from __future__ import annotations

from collections import Counter

from geokv.errors import ConfigError


class Quota:
    """Counts the places of each owner. Whoever has his share makes room for himself.

    Args:
        slots: places of the tier, all of which one owner may have until ``limit``.
    """

    def __init__(self, slots: int) -> None:
        self.most = slots
        self._slots = slots
        self._owners: dict[bytes, str] = {}
        self._places: Counter[str] = Counter()

    def limit(self, share: float) -> None:
        """From now on one owner may have ``share`` of the places, and at least one.

        Raises:
            ConfigError: not above 0, or above 1.
        """
        if not 0 < share <= 1:
            raise ConfigError(f"tiers.quota: must be above 0 and at most 1, got {share:g}")
        self.most = max(1, int(self._slots * share))

    def used_up(self, owner: str) -> bool:
        """Has ``owner`` as many places as it may have? What nobody owns is not counted."""
        return bool(owner) and self._places[owner] >= self.most

    def owns(self, owner: str, key: bytes) -> bool:
        """Is the place of ``key`` counted for ``owner``?"""
        return self._owners.get(key) == owner

    def took(self, key: bytes, owner: str) -> None:
        """``key`` has got a place."""
        self._owners[key] = owner
        self._places[owner] += 1

    def left(self, key: bytes) -> None:
        """``key`` has given its place back."""
        owner = self._owners.pop(key)
        self._places[owner] -= 1
        if not self._places[owner]:
            del self._places[owner]

    def places(self) -> dict[str, int]:
        """By owner."""
        return dict(self._places)

    def keys(self) -> set[bytes]:
        """All that have a place."""
        return set(self._owners)
