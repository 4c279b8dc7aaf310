"""One site's share of the cache: the only door for the site's process.

Longer than other modules, because it is a door: it joins the parts, says once what each call
promises, and passes it on.

::

    cache = SharedCache("b", layout, tier, directory, transport)
    await cache.start("10.0.0.2", 7000, peers={"a": ("10.0.0.1", 7000)})
    await cache.connect(deadline_ns)
    plan = await cache.lookup(refs, deadline_ns)
    outcome = await cache.fetch(plan, deadline_ns, on_chunk)
    await cache.store(ref, fill)
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from geokv.cache.announcing import Announcer
from geokv.cache.background import Background
from geokv.cache.doubting import Doubter
from geokv.cache.fetching import OnChunk
from geokv.cache.history import History, Sink
from geokv.cache.holding import Holdings
from geokv.cache.keys import ChunkRef
from geokv.cache.layered import LayeredFetcher, OnGroup, OnPiece
from geokv.cache.layout import ChunkLayout
from geokv.cache.lifetime.forgetting import Forgetting, PurgeSettings
from geokv.cache.lifetime.purge import Receipt
from geokv.cache.locality import DiskTier, DramTier, TierStack, WritePolicy
from geokv.cache.membership import Membership, MembershipSettings
from geokv.cache.membership.neighbours import Neighbours
from geokv.cache.misses import Misses
from geokv.cache.ownership import Directory
from geokv.cache.plan import Outcome, Plan
from geokv.cache.planning import Planner
from geokv.cache.publishing import Publisher, PublishPolicy
from geokv.cache.receiving import TierSink
from geokv.cache.replicating import Replication, Replicator
from geokv.cache.serving import TierSource
from geokv.cache.substrate import Transport
from geokv.clock import now_ns
from geokv.errors import CacheError, FetchError
from geokv.units import NS_PER_S

_KEYS_PER_CALL = 4096

_log = logging.getLogger(__name__)


class SharedCache:
    """Tiers, directory and transport of one site.

    Args:
        tier: the DRAM tier; under a disk it needs spare places.
        history: takes one dict per block operation (see ``History``).
        clock: monotonic ns, for history and spans. Deadlines are always on
            ``geokv.clock.now_ns``.
        lease_s: how long an answer to a peer may keep a chunk pinned.
        directory_s: deadline of directory calls that no request waits for.
        replicate: publish what was fetched, so that hot chunks spread.
        exact: never use KV that lost something on its way (another element type).
        disk: what chunks go down to and come up from; belongs to this object from here on.
        write: when chunks go down (see ``locality.stack``).
        audit: note the checksums of every chunk that the engine is given.
        membership: when a peer is down by its heartbeats; ``None`` sends none, and a peer
            is left alone when a deadline has passed in its silence.
        replication: where copies of what is computed here go in the background.
        purge: who numbers purges, and their bound; needs heartbeats.
        publish: which chunks the directory hears of (see ``Publisher``).

    Raises:
        ConfigError: an unknown policy, or a disk under a tier without spare places.
    """

    def __init__(
        self,
        site: str,
        layout: ChunkLayout,
        tier: DramTier,
        directory: Directory,
        transport: Transport,
        history: Sink | None = None,
        clock: Callable[[], int] = now_ns,
        *,
        lease_s: float = 10.0,
        directory_s: float = 5.0,
        replicate: bool = True,
        exact: bool = True,
        disk: DiskTier | None = None,
        write: WritePolicy = "write-back",
        publish: PublishPolicy = "all",
        audit: bool = False,
        membership: MembershipSettings | None = None,
        replication: Replication | None = None,
        purge: PurgeSettings | None = None,
    ) -> None:
        self.site = site
        self.layout = layout
        self.tier = tier
        self.directory = directory
        self.transport = transport
        self.knows_tenant: Callable[[str], bool] = lambda tenant: True
        """Whose chunks may be served and taken at all."""
        self._history = History(site, history, clock)
        self._misses = Misses(self._history)
        self.misses = self._misses.total
        self._background = Background(site)
        spawn = self._background.spawn
        self._hits: Counter[str] = Counter()
        self._remote_hits: Counter[str] = Counter()
        self.tiers = TierStack(
            tier,
            disk,
            self._history,
            transport.incarnation,
            spawn,
            lambda key: self._publisher.gone(key),
            lambda key: self._publisher.became_hot(key),
            write,
        )
        self._announcer = Announcer(
            self.tiers,
            directory,
            self._history,
            round(directory_s * NS_PER_S),
            lambda why: self._misses.count("directory", why),
            spawn,
        )
        self._replicator: Replicator | None = None
        if replication is not None:
            self._replicator = Replicator(
                replication, self.tiers, transport.push, self._history, spawn
            )
        self._publisher = Publisher(
            self.tiers, self._announcer, self._replicator, publish, replicate
        )
        self._neighbours = Neighbours(site, transport, directory, self._history, membership)
        self._forgetting = Forgetting(
            site,
            purge,
            self._neighbours,
            transport,
            self.tiers,
            self._history,
            spawn,
            self._publisher.gone,
        )
        self._source = TierSource(
            self.tiers,
            layout,
            transport.incarnation,
            round(lease_s * NS_PER_S),
            self._history,
            self._announcer.gone,
            lambda tenant: self.knows_tenant(tenant),
            self._forgetting.closed_to,
        )
        self._sink = TierSink(
            self.tiers,
            layout,
            self._history,
            exact,
            lambda key: self._publisher.fetched([key]),
            lambda tenant: self.knows_tenant(tenant),
        )
        self._forgetting.revoke = self._source.revoke
        self._fetcher = LayeredFetcher(
            self.tiers, layout, transport, self._history, self._background.keep, exact, audit
        )
        self._holdings = Holdings(
            layout,
            tier,
            self.tiers,
            self._history,
            self._misses,
            self._publisher,
            transport.incarnation,
            lambda key: self._fetcher.unseen.pop(key, None),
        )
        self._planner = Planner(
            site,
            layout,
            self.tiers,
            directory,
            transport,
            self._history,
            self._misses,
            clock,
            lambda tenant, epoch: self._forgetting.closed_to(tenant, epoch),
        )
        self._doubter = Doubter(self.tiers, layout, transport, spawn, self._holdings.rotten)
        self._fetcher.on_rotten = self._holdings.rotten
        self._fetcher.on_unused = lambda key: self._publisher.fetched([key])
        self._fetcher.on_damaged = self._doubter.doubt
        self._fetcher.gate = lambda ref: self._forgetting.closed_to(ref.tenant, ref.epoch)

    # -- life ------------------------------------------------------------------

    async def start(self, host: str, port: int, peers: Mapping[str, tuple[str, int]]) -> int:
        """Serve this site's chunks and learn the peers' addresses; returns the port.

        Raises:
            CacheError: the port is taken or the address is not this site's.
        """
        found = self.tiers.keys("disk") if self.tiers.disk is not None else []
        spawn, here = self._background.spawn, self.tiers.__contains__
        self.directory.attach(self._history, spawn, here, found)
        handlers = {
            **self.directory.bind(self.site, self.transport),
            **self._forgetting.handlers,
            **self._doubter.handlers,
        }
        bound = await self.transport.serve(host, port, self._source, handlers, self._sink)
        for name, (peer_host, peer_port) in peers.items():
            self.add_peer(name, peer_host, peer_port)
        try:
            self._neighbours.start(host, bound)
        except CacheError:
            await self.transport.close()
            raise
        return bound

    @property
    def membership(self) -> Membership | None:
        """Heartbeats with all peers, where there are any."""
        return self._neighbours.membership

    def add_peer(self, site: str, host: str, port: int) -> None:
        """Make one more site known; call ``connect`` to reach it now."""
        self._neighbours.add(site, host, port)

    async def connect(self, deadline_ns: int) -> None:
        """Open all connections to all peers, join the directory, and tell it what an
        earlier life of this site left on the disk.

        Raises:
            FetchError: a peer is unreachable, does not share the secret
                (``unauthorised``) or has another chunk layout (``mismatch``). Peers
                that are merely down now are tried again when they are needed.
        """
        error = await self._neighbours.reach(self.transport.connect, deadline_ns)
        left = self.tiers.keys("disk") if self.tiers.disk is not None else []
        for start in range(0, len(left), _KEYS_PER_CALL):
            await self.publish(left[start : start + _KEYS_PER_CALL], deadline_ns)
        if error is not None:
            raise error

    async def reconnect(self, deadline_ns: int) -> None:
        """Replace all connections, so that nothing learnt on an earlier path remains.

        Raises:
            FetchError: as ``connect``.
        """
        error = await self._neighbours.reach(self.transport.reconnect, deadline_ns)
        if error is not None:
            raise error

    async def warm(self, n_bytes: int, deadline_ns: int) -> None:
        """Pull ``n_bytes`` of filler over every data connection of every peer.

        Raises:
            FetchError: a peer failed.
        """
        await asyncio.gather(
            *(self.transport.warm(peer, n_bytes, deadline_ns) for peer in self._neighbours.names)
        )

    async def quiesce(self, deadline_ns: int) -> None:
        """Wait until nothing is under way that no caller waits for.

        Raises:
            CacheError: something still is at the deadline.
        """
        await self._background.quiesce(deadline_ns)

    async def close(self, patience_s: float = 5.0) -> None:
        """Close all connections, end all background work and let the disk go.

        Args:
            patience_s: how long what was begun on the disk may take to end. A disk that hangs
                is left behind then (``DiskTier.abandon``), and the cache must not be used again.
        """
        self.directory.close()
        self._neighbours.close()
        if await self._background.cancel(patience_s):
            self.tiers.abandon()
            left = await self._background.cancel(patience_s)
            if left:
                _log.warning("%d background tasks of %r did not end", left, self.site)
        await self.transport.close()
        self._source.close()
        self.tiers.close()

    # -- reading ---------------------------------------------------------------

    async def lookup(
        self, refs: Sequence[ChunkRef], deadline_ns: int, request_id: str = ""
    ) -> Plan:
        """The longest prefix of ``refs`` that this site or, says the directory, another has.

        What of it lies on this site's disk begins to come up at once.
        The directory is asked once, for what is not here; if it does not answer in
        time that is a counted miss and the plan ends with what is here.

        Args:
            request_id: for whom; what the history says of this plan carries it.
        """
        return await self._planner.plan(refs, deadline_ns, request_id)

    async def fetch(self, plan: Plan, deadline_ns: int, on_chunk: OnChunk) -> Outcome:
        """Bring the chunks of ``plan`` here and hand them over in prefix order.

        ``on_chunk(index, entry)`` is awaited for each chunk as soon as it and all
        before it are readable; the entry is pinned until it returns. Stops at the
        first missing chunk, or at the deadline. What ``on_chunk`` raises is raised.
        """
        return self._fetched(plan, await self._fetcher.run(plan, deadline_ns, on_chunk))

    async def fetch_layered(
        self, plan: Plan, deadline_ns: int, on_piece: OnPiece, on_group: OnGroup
    ) -> Outcome:
        """As ``fetch``, in group-major order, so that the first layers of the whole
        prefix are here first (see ``layered``).

        ``on_piece(chunk, group, kv)`` is awaited for every verified group;
        ``on_group(group, chunks)`` when that group of the first ``chunks`` chunks has
        been handed over. The prefix may still get shorter with a later group.
        """
        outcome = await self._fetcher.run_layered(plan, deadline_ns, on_piece, on_group)
        return self._fetched(plan, outcome)

    def _fetched(self, plan: Plan, outcome: Outcome) -> Outcome:
        self.misses.update(outcome.misses)
        self._count(outcome)
        used = [ref.key for ref in plan.refs[: outcome.usable_chunks]]
        self.tiers.chained(used)
        if outcome.remote_chunks:
            self._publisher.fetched([key for key in used if key in self.tiers])
        return outcome

    def note_device_use(self, ref: ChunkRef, request_id: str) -> None:
        """For the audit: a request found this chunk among the engine's own blocks."""
        self._history.note(
            "use",
            ref.key,
            request_id=request_id,
            tenant=ref.tenant,
            source="device",
            generation=0,
            incarnation=self.transport.incarnation,
            checksums=[],
        )

    # -- writing ---------------------------------------------------------------

    async def push(
        self, sites: Sequence[str], ref: ChunkRef, deadline_ns: int
    ) -> dict[str, FetchError | None]:
        """Offer a chunk of this site to others; it is read once, whoever takes it.

        Returns:
            Per site ``None`` once it is readable there (the receiver tells the
            directory), or why it is not: ``present``, ``full``, ``mismatch``, ….
        """
        return await self.transport.push(sites, ref, deadline_ns)

    async def store(
        self,
        ref: ChunkRef,
        fill: Callable[[memoryview], None],
        publish: bool = True,
        request_id: str = "",
    ) -> bool:
        """Keep one chunk that was computed here.

        Args:
            fill: writes the payload ``[L, 2, T, Hkv, D]`` into the memory it is given.
            publish: tell the directory, and wait until it knows.
            request_id: for whom it was computed; for the history.

        Returns:
            False if it was here already or there is no room (counted as ``full``):
            a failed store costs reuse later, never an answer now.
        """
        stored = self._holdings.store(ref, fill, request_id)
        if stored and publish:
            await self.publish([ref.key])
        return stored

    async def publish(self, keys: Sequence[bytes], deadline_ns: int | None = None) -> bool:
        """Tell the directory that this site has ``keys`` (of one prefix, head first), in
        one call; of those the publish policy keeps back it hears when they are used.

        Returns:
            False if it could not be told; counted as ``directory``.
        """
        self.tiers.chained(keys)
        return await self._publisher.publish(keys, deadline_ns)

    async def drop(
        self,
        tier: Literal["dram", "disk", "all"] = "dram",
        keys: Sequence[bytes] | None = None,
        deadline_ns: int | None = None,
        *,
        tell: bool = True,
    ) -> int:
        """Forget ``keys`` (or everything) in one tier, or in ``all``: first in the
        directory, if this site has no other copy, then here.

        Args:
            tell: wait until the directory knows; otherwise it hears of it later, as of what
                is evicted.

        Returns:
            How many chunks were dropped.

        Raises:
            CacheError: there is no such tier, or files of dropped chunks remain.
        """
        return await self._holdings.drop(tier, keys, deadline_ns, tell)

    def hand_over_unseen(self, key: bytes) -> None:
        """Never look at this chunk's bytes again before they are used: for control arms
        that show what wrong KV does. It is looked at again once it was dropped."""
        self._fetcher.unseen[key] = None

    # -- forgetting ------------------------------------------------------------

    def epoch(self, tenant: str) -> int:
        """What chunks of ``tenant`` must carry to be used: the number of its last purge."""
        return self._forgetting.epoch(tenant)

    @property
    def fenced(self) -> bool:
        """Must this site use nothing, because it may not have heard of a purge?"""
        return self._forgetting.fenced

    @property
    def purge_bound_ns(self) -> int:
        """How long after a purge nothing of it is used anywhere; 0 where there are none."""
        return self._forgetting.bound_ns

    def when_forgotten(self, told: Callable[[str], None]) -> None:
        """``told`` hears of every tenant of which nothing older than that moment may be
        used any more."""
        self._forgetting.on_forget = told

    async def purge(self, tenant: str, purge_id: str, deadline_ns: int) -> Receipt:
        """Forget everything of ``tenant`` at every site; returns when that is acknowledged
        (see ``lifetime.purge``). Asking again with the same id purges once.

        Raises:
            ConfigError: this deployment has no purges.
            CacheError: nothing was purged, or it is not acknowledged yet; the hint says which.
        """
        return await self._forgetting.purge(tenant, purge_id, deadline_ns)

    # -- accounts --------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Everything countable, JSON-ready, for the run folder. ``hits`` are chunks that
        were handed over, by tier and, from other sites, by source."""
        wire = self.layout.wire_bytes
        return {
            "site": self.site,
            "tier": self.tier.stats(),
            "disk": self.tiers.stats(),
            "hits": {**self._hits, "remote": dict(self._remote_hits)},
            "hit_bytes": {
                **{name: chunks * wire for name, chunks in self._hits.items()},
                "remote": {site: chunks * wire for site, chunks in self._remote_hits.items()},
            },
            "directory": self.directory.stats(),
            "transport": self.transport.stats(),
            "misses": dict(self.misses),
            "served": dict(self._source.served),
            "served_bytes": self._source.served_bytes,
            "pushed": dict(self._sink.landed),
            "purges": self._forgetting.stats(),
            "doubts": dict(self._doubter.counters),
            "membership": self._neighbours.stats(),
            "replicated": dict(self._replicator.ends) if self._replicator is not None else {},
            "background": len(self._background),
        }

    @property
    def source(self) -> TierSource:
        """What other sites are answered from."""
        return self._source

    @property
    def leases(self) -> int:
        """Chunks of this site that are pinned for other sites now."""
        return self._source.lent + self._source.held

    def check_integrity(self, deep: bool = False) -> None:
        """INV-5 for this site. Raises ``CacheError`` naming what does not balance.

        Args:
            deep: also compare every readable chunk with its checksums; what is wrong then is
                ``DamagedChunks``, which says that all books are in order.
        """
        self.directory.check_integrity()
        self.tiers.check_integrity(deep)

    # -- inside ----------------------------------------------------------------

    def _count(self, outcome: Outcome) -> None:
        self._hits["dram"] += outcome.local_chunks - outcome.disk_chunks
        self._hits["disk"] += outcome.disk_chunks
        self._hits["merged"] += outcome.merged_chunks
        self._remote_hits.update(outcome.sites)
