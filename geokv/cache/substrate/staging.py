"""Memory of a site that an engine may reach: what it owns anyway, and where transfers land."""

from __future__ import annotations

import numpy as np

from geokv.cache.substrate.agent import Agent
from geokv.cache.substrate.segments import Segment, address_of
from geokv.errors import CacheError


class Registry:
    """Which registered segment a view lies in, and memory that transfers land in.

    An engine that cannot stop a transfer would write into a slot that is somebody
    else's by then, so it never writes into slots: it gets memory of its own, which is
    used again only when the engine has let go of it.
    """

    def __init__(self) -> None:
        self.agent: Agent | None = None
        self.forsaken = 0
        self._whole: dict[int, tuple[object, Segment]] = {}
        self._free: dict[int, list[Segment]] = {}

    def find(self, view: memoryview) -> tuple[Segment, int]:
        """The segment of ``view`` and where in it ``view`` begins; what holds the view is
        registered as a whole when it is first seen."""
        if self.agent is None:
            raise CacheError("this site's engine is not started", "call serve first")
        owner = view.obj
        if id(owner) not in self._whole:
            segment = self.agent.register(memoryview(owner))
            self._whole[id(owner)] = (owner, segment)
        segment = self._whole[id(owner)][1]
        return segment, address_of(view) - segment.address

    def staging(self, size: int) -> Segment:
        """Memory for one transfer."""
        free = self._free.setdefault(size, [])
        if free:
            return free.pop()
        if self.agent is None:
            raise CacheError("this site's engine is not started", "call serve first")
        return self.agent.register(np.zeros(size, np.uint8).data)

    def give_back(self, memory: Segment) -> None:
        """The engine has let go of it."""
        self._free.setdefault(len(memory.view), []).append(memory)

    def forsake(self, memory: Segment) -> None:
        """The engine did not let go of it: it is never used again."""
        self.forsaken += 1
