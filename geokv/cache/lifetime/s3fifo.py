"""S3-FIFO as AIBrix runs it in front of its distributed tier: scan-resistant.

Source: S3-FIFO is Yang et al., SOSP 2023; shares, thresholds and the order of steps
are those of aibrix_kvcache/l1/eviction_policy/s3fifo.py in vllm-project/aibrix. Two
things differ. AIBrix counts bytes and frees one byte more than it must, which costs a
whole block each time; here exactly one chunk goes for one that comes. And AIBrix puts
the newcomer in its queue before it makes room, so that it can itself be the victim;
here it only counts, and enters when there is room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from geokv.cache.lifetime.policy import MayGo
from geokv.errors import ConfigError

SMALL_SHARE = 0.3
PROMOTION_HITS = 1
_HOTTEST = 3


class S3Fifo:
    """A small queue for newcomers, a main one for what was read again, a ghost of keys.

    A new key enters *small*; one that left small unread not long ago (*ghost*) enters
    *main* at once. Reads only count hotness (at most 3). For room, if small is over
    its share (or main is empty) its oldest moves to main if it is hot, else goes and
    leaves its key in the ghost; otherwise main's oldest goes, or, if hot, cools by one
    and queues again. A key that may not go is passed over and keeps its place.

    Args:
        capacity: chunks that fit into the tier; small has 0.3 of it, main and ghost
            the rest each.

    Raises:
        ConfigError: capacity or a setting is impossible.
    """

    def __init__(
        self, capacity: int, small_share: float = SMALL_SHARE, promotion_hits: int = PROMOTION_HITS
    ) -> None:
        if capacity < 1:
            raise ConfigError(f"s3fifo: capacity must be ≥ 1 chunk, got {capacity}")
        if not 0 < small_share < 1:
            raise ConfigError(f"s3fifo: small_share must be between 0 and 1, got {small_share:g}")
        if not 1 <= promotion_hits <= _HOTTEST:
            raise ConfigError(f"s3fifo: promotion_hits must be 1 to 3, got {promotion_hits}")
        self._small_most = int(capacity * small_share)
        self._main_most = capacity - self._small_most
        self._promotion_hits = promotion_hits
        # Key -> hotness, the oldest first.
        self._small: OrderedDict[bytes, int] = OrderedDict()
        self._main: OrderedDict[bytes, int] = OrderedDict()
        self._ghost: OrderedDict[bytes, None] = OrderedDict()

    def added(self, key: bytes) -> None:
        if key in self._ghost:
            del self._ghost[key]
            self._main[key] = 0
        else:
            self._small[key] = 0

    def used(self, key: bytes) -> None:
        queue = self._small if key in self._small else self._main
        queue[key] = min(queue[key] + 1, _HOTTEST)

    def chained(self, keys: Sequence[bytes]) -> None:
        return None

    def removed(self, key: bytes) -> None:
        del (self._small if key in self._small else self._main)[key]

    def evict(self, coming: bytes, may_go: MayGo) -> bytes | None:
        def small() -> tuple[bytes | None, bool]:
            return self._from_small(coming, may_go)

        def main() -> tuple[bytes | None, bool]:
            return self._from_main(may_go)

        in_main = coming in self._ghost
        while True:
            small_len = len(self._small) + (not in_main)
            main_len = len(self._main) + in_main
            first_small = small_len > self._small_most or not main_len
            gone, moved = small() if first_small else main()
            if gone is not None:
                return gone
            if not moved:
                # Nothing there may go: pins, and not the share, decide.
                return _first(main if first_small else small)

    def keys(self) -> Iterator[bytes]:
        yield from self._small
        yield from self._main

    def _from_small(self, coming: bytes, may_go: MayGo) -> tuple[bytes | None, bool]:
        """One step at small's end: (who went, whether a key moved)."""
        in_main = coming in self._ghost
        for key, hotness in self._small.items():
            if hotness >= self._promotion_hits:
                del self._small[key]
                self._main[key] = 0
                if len(self._main) + in_main > self._main_most:
                    return self._from_main(may_go)[0], True
                return None, True
            if may_go(key):
                del self._small[key]
                self._ghost[key] = None
                if len(self._ghost) - in_main > self._main_most:
                    del self._ghost[next(old for old in self._ghost if old != coming)]
                return key, True
        return None, False

    def _from_main(self, may_go: MayGo) -> tuple[bytes | None, bool]:
        """One step at main's end: (who went, whether a key cooled)."""
        for key, hotness in self._main.items():
            if hotness:
                self._main[key] = hotness - 1
                self._main.move_to_end(key)
                return None, True
            if may_go(key):
                del self._main[key]
                return key, True
        return None, False


def _first(step: Callable[[], tuple[bytes | None, bool]]) -> bytes | None:
    """Who goes first, however many keys move before; ``None`` if none may."""
    while True:
        gone, moved = step()
        if gone is not None or not moved:
            return gone
