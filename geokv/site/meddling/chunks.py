"""Payload that is damaged in the serving process, after which TCP carries it faithfully."""

from __future__ import annotations

import random
from collections.abc import Collection

from geokv.cache.serving import TierSource
from geokv.cache.substrate import Served
from geokv.clock import now_ns


class ChunkDamage:
    """Of every so many answers to some peers one bit is flipped in one. What lies in the tier
    stays as it is.

    Attributes:
        damaged: how many were.
        first_ns: when the first was handed to the connection; 0 before.
    """

    def __init__(self, source: TierSource, seed: int) -> None:
        self.damaged = 0
        self.first_ns = 0
        self._rng = random.Random(seed)
        self._open = source.open
        self._peers: frozenset[str] = frozenset()
        self._one_in = 1
        self._count = 0
        source.open = self._meddled  # type: ignore[method-assign]

    def set(self, peers: Collection[str], one_in: int) -> None:
        """From now on; no peers end it."""
        self._peers = frozenset(peers)
        self._one_in = one_in
        self._count = 0

    def _meddled(self, key: bytes, tenant: str, peer: str) -> Served | str:
        served = self._open(key, tenant, peer)
        if isinstance(served, str) or peer not in self._peers:
            return served
        self._count += 1
        if self._count % self._one_in == 0:
            self._damage(served)
        return served

    def _damage(self, served: Served) -> None:
        """Whatever part of it is asked for."""
        part, bit = served.part, self._rng.getrandbits(32)

        def damaged(group: int, groups: int, exact: bool) -> Served | str:
            found = part(group, groups, exact)
            if not isinstance(found, str):
                real = bytearray(found.pieces[0])
                at = bit % (8 * len(real))
                real[at // 8] ^= 1 << at % 8
                found.pieces = [memoryview(real), *found.pieces[1:]]
                self.damaged += 1
                self.first_ns = self.first_ns or now_ns()
            return found

        served.part = damaged  # type: ignore[method-assign]
