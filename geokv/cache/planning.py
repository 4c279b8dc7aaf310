"""Where the chunks of a prefix are: asked once, before anything is fetched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from geokv.cache.history import History
from geokv.cache.keys import ChunkRef
from geokv.cache.layout import ChunkLayout
from geokv.cache.locality import TierStack
from geokv.cache.misses import Misses
from geokv.cache.mixed import spread
from geokv.cache.ownership import Directory
from geokv.cache.plan import LOCAL, Plan
from geokv.cache.substrate import Transport
from geokv.errors import CacheError


class Planner:
    """Looks prefixes up for one site.

    Args:
        clock: monotonic ns, of the plan's own time.
        closed_to: why chunks of (tenant, epoch) may not be used now; empty if they may.
    """

    def __init__(
        self,
        site: str,
        layout: ChunkLayout,
        tiers: TierStack,
        directory: Directory,
        transport: Transport,
        history: History,
        misses: Misses,
        clock: Callable[[], int],
        closed_to: Callable[[str, int], str],
    ) -> None:
        self._site = site
        self._layout = layout
        self._tiers = tiers
        self._directory = directory
        self._transport = transport
        self._history = history
        self._misses = misses
        self._clock = clock
        self._closed_to = closed_to

    async def plan(self, refs: Sequence[ChunkRef], deadline_ns: int, request_id: str) -> Plan:
        """See ``SharedCache.lookup``."""
        started = self._clock()
        misses: Counter[str] = Counter()
        closed = self._closed_to(refs[0].tenant, refs[0].epoch) if refs else ""
        if closed:
            why = f"no chunk may be used now ({closed})"
            self._misses.count(closed, why, refs[0].key, request_id, misses)
            return Plan((), (), len(refs), 0, misses, request_id=request_id)
        here = [ref.key in self._tiers for ref in refs]
        # Whatever the directory says, what is here up to the first gap is in the plan.
        gap = here.index(False) if False in here else len(here)
        promoted = self._tiers.prefetch(refs[:gap])
        elsewhere = [ref.key for ref, is_here in zip(refs, here, strict=True) if not is_here]
        located: dict[bytes, tuple[str, ...]] = {}
        if elsewhere:
            try:
                found = await self._directory.locate(elsewhere, deadline_ns)
                located = dict(zip(elsewhere, found, strict=True))
            except CacheError as error:
                self._misses.count("directory", error.message, None, request_id, misses)
        spans = spread(refs, located, self._transport.layout, self._layout)
        sources = self._sources(refs, here, located, request_id, misses)
        rest = self._tiers.prefetch(refs[gap : len(sources)])
        promoted.update({gap + i: arrival for i, arrival in rest.items()})
        plan = Plan(
            tuple(refs[: len(sources)]),
            tuple(sources),
            len(refs),
            self._clock() - started,
            misses,
            spans,
            promoted=promoted,
            request_id=request_id,
        )
        self._history.note(
            "lookup",
            refs[-1].key if refs else None,
            request_id=request_id,
            asked=plan.asked,
            local=plan.local_chunks,
            promoted=len(promoted),
            remote=plan.remote_chunks,
            lookup_ns=plan.lookup_ns,
        )
        return plan

    def _sources(
        self,
        refs: Sequence[ChunkRef],
        here: Sequence[bool],
        located: dict[bytes, tuple[str, ...]],
        request_id: str,
        misses: Counter[str],
    ) -> list[tuple[str, ...]]:
        """Of each chunk whom to ask, up to the first that nobody has or can be asked for."""
        sources: list[tuple[str, ...]] = []
        for ref, is_here in zip(refs, here, strict=True):
            if is_here:
                sources.append((LOCAL,))
                continue
            sites = [site for site in located.get(ref.key, ()) if site != self._site]
            if not sites:
                if not misses:
                    self._misses.count("absent", "no site has it", ref.key, request_id, misses)
                break
            alive = tuple(site for site in sites if self._transport.up(site))
            if not alive:
                why = f"{', '.join(sites)} left alone"
                self._misses.count("unreachable", why, ref.key, request_id, misses)
                break
            sources.append(alive)
        return sources
