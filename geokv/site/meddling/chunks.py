"""Payload that is damaged in the serving process, after which TCP carries it faithfully."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from geokv.cache.serving import TierSource
from geokv.cache.substrate import Served
from geokv.clock import now_ns


@dataclass
class Damaged(Served):
    """Flips one bit of what is sent; what lies in the tier stays as it is."""

    bit: int = 0

    def part(self, group: int, groups: int, exact: bool) -> Served | str:
        found = super().part(group, groups, exact)
        if not isinstance(found, str):
            real = bytearray(self.pieces[0])
            at = self.bit % (8 * len(real))
            real[at // 8] ^= 1 << at % 8
            self.pieces = [memoryview(real), *self.pieces[1:]]
        return found


class ChunkDamage:
    """Of every so many answers to some peers one is damaged.

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
        self._one_in = 0
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
        if self._count % self._one_in:
            return served
        self.damaged += 1
        self.first_ns = self.first_ns or now_ns()
        bit = self._rng.getrandbits(32)
        fields = {name: getattr(served, name) for name in Served.__dataclass_fields__}
        return Damaged(**fields, bit=bit)
