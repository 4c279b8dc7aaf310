"""Payload that is damaged in the serving process, after which TCP carries it faithfully."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from geokv.cache.serving import TierSource
from geokv.cache.substrate import Served
from geokv.clock import now_ns


@dataclass(slots=True)
class Aim:
    """What one fault wants damaged, and what it has had.

    Attributes:
        peers: whom it is sent to; none end it.
        one_in: of so many chunks to them one is damaged.
        damaged: how many were.
        first_ns: when the first was handed to the connection; 0 before.
    """

    peers: frozenset[str]
    one_in: int
    damaged: int = 0
    first_ns: int = 0
    _count: int = 0

    def hits(self, peer: str) -> bool:
        """Whether this answer is one to damage."""
        if peer not in self.peers:
            return False
        self._count += 1
        return self._count % self.one_in == 0


class ChunkDamage:
    """Of answers to some peers one bit is flipped in one of so many. What lies in the tier
    stays as it is.

    Attributes:
        aims: by the name of the fault, with what it has done since it was last set.
    """

    def __init__(self, source: TierSource, seed: int) -> None:
        self.aims: dict[str, Aim] = {}
        self._rng = random.Random(seed)
        self._open = source.open
        source.open = self._meddled  # type: ignore[method-assign]

    def set(self, name: str, peers: Collection[str], one_in: int) -> None:
        """From now on; no peers end it, and what was counted stays."""
        if peers:
            self.aims[name] = Aim(frozenset(peers), one_in)
        elif name in self.aims:
            self.aims[name].peers = frozenset()

    def _meddled(self, key: bytes, tenant: str, peer: str) -> Served | str:
        served = self._open(key, tenant, peer)
        if isinstance(served, str):
            return served
        for aim in self.aims.values():
            if aim.hits(peer):
                self._damage(served, aim)
        return served

    def _damage(self, served: Served, aim: Aim) -> None:
        """Whatever part of it is asked for."""
        part, bit = served.part, self._rng.getrandbits(32)

        def damaged(group: int, groups: int, exact: bool) -> Served | str:
            found = part(group, groups, exact)
            if not isinstance(found, str):
                real = bytearray(found.pieces[0])
                at = bit % (8 * len(real))
                real[at // 8] ^= 1 << at % 8
                found.pieces = [memoryview(real), *found.pieces[1:]]
                aim.damaged += 1
                aim.first_ns = aim.first_ns or now_ns()
            return found

        served.part = damaged  # type: ignore[method-assign]
