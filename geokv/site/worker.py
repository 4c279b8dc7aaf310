"""One request, end to end, at the site that serves it.

tokens → prefix tree on the device → dram tier → directory → fetch, chunk by chunk, into
free blocks while the rest is still on the wire → prefill of what is left → tokens out →
new chunks stored and published.

Longer than most modules, because the way of a request is one story.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from geokv.cache.keys import ChunkRef, chunk_refs, root_key
from geokv.cache.shared import SharedCache
from geokv.clock import now_ns
from geokv.engine.generation import TokenEvent
from geokv.engine.loop import EngineLoop
from geokv.engine.request import Prompt, Request
from geokv.engine.sampling import SamplingParams
from geokv.engine.sequence import Sequence as EngineSequence
from geokv.engine.tokenizer import Tokenizer
from geokv.errors import GeokvError
from geokv.site.loading import BlockFiller, LayerFiller, write_payload
from geokv.site.recent import RecentRequests
from geokv.site.record import CLIENT_GONE, RequestRecord
from geokv.site.settings import Reuse, Tenant
from geokv.units import NS_PER_S


@dataclass(frozen=True)
class Ask:
    """A request as the worker sees it."""

    request_id: str
    tenant: Tenant
    tokens: list[int]
    params: SamplingParams
    deadline_ns: int


class Worker:
    """Joins an engine's loop to a shared cache.

    Args:
        copy_bytes_per_token: KV bytes per token of the deployment the run stands for;
            what a copy between host and device is charged for.
        fetch_deadline_s: longest wait for one fetch; the rest is recomputed.
        overlap: fetch layer group by layer group and let the engine begin with the first.
        audit: note in the history what was used from the device, too.

    Attributes:
        on_finished: takes the record of every request once, when it has ended.
    """

    def __init__(
        self,
        loop: EngineLoop,
        tokenizer: Tokenizer,
        cache: SharedCache,
        copy_bytes_per_token: int,
        fetch_deadline_s: float,
        *,
        overlap: bool = False,
        audit: bool = False,
    ) -> None:
        self.loop = loop
        self.engine = loop.engine
        self.tokenizer = tokenizer
        self.cache = cache
        self.reuse: Reuse = "remote"
        self.records = RecentRequests()
        self.on_finished: Callable[[RequestRecord], None] | None = None
        self._copy_bytes_per_token = copy_bytes_per_token
        self._fetch_deadline_ns = round(fetch_deadline_s * NS_PER_S)
        self._audit = audit
        self._layered = overlap and cache.layout.groups > 1
        self._storing: set[asyncio.Task[None]] = set()
        self._old_roots: dict[bytes, None] = {}
        self._roots: dict[str, dict[bytes, None]] = {}
        cache.when_forgotten(self._forget)
        self.engine.tree.hidden = self._is_hidden

    async def answer(self, ask: Ask) -> AsyncGenerator[TokenEvent, None]:
        """Tokens of all ``n`` answers as they come.

        Closing the iterator early (the client has gone) frees everything.

        Raises:
            EngineError: the prompt does not fit, or computing it failed.
            Overloaded: the queue is full.
            RunError: the deadline passed.
        """
        record = RequestRecord(ask.request_id, ask.tenant.name, len(ask.tokens), now_ns())
        self.records.begin(record)
        request: Request | None = None
        try:
            request = self.loop.submit(self._prompt(ask, record))
            async for event in request:
                record.take(event, now_ns())
                yield event
        except GeokvError as error:
            record.error = error.message
            raise
        except (asyncio.CancelledError, GeneratorExit):
            record.error = CLIENT_GONE
            raise
        finally:
            if request is not None:
                request.cancel()
                self._complete(record, request)
                if request.prompt.root in self._old_roots:
                    self.engine.flush(request.prompt.root)
            record.finished_ns = record.finished_ns or now_ns()
            self.records.end(record, request.first_logits if request is not None else None)
            if self.on_finished is not None:
                self.on_finished(record)

    async def settle(self, deadline_ns: int) -> None:
        """Wait until everything answered so far is stored and published.

        Raises:
            CacheError: something is still under way at the deadline.
        """
        if self._storing:
            await asyncio.wait(
                set(self._storing), timeout=max(0.0, (deadline_ns - now_ns()) / NS_PER_S)
            )
        await self.cache.quiesce(deadline_ns)

    async def drop(self, tiers: Sequence[str], *, tell: bool = True) -> dict[str, int]:
        """Forget what is cached in these tiers; how much it was, per tier.

        Args:
            tell: as of ``SharedCache.drop``.
        """
        dropped = {}
        if "device" in tiers:
            dropped["device"] = self.engine.flush()
        if "dram" in tiers:
            dropped["dram"] = await self.cache.drop("dram", tell=tell)
        if "disk" in tiers and self.cache.tiers.disk is not None:
            dropped["disk"] = await self.cache.drop("disk", tell=tell)
        return dropped

    def chunks(
        self, tenant: Tenant, tokens: Sequence[int], epoch: int | None = None
    ) -> list[ChunkRef]:
        """Every whole chunk of ``tokens`` as this tenant's prompts name it, in prefix order.

        Args:
            epoch: of the tenant when the request came; now if it is ``None``.
        """
        layout = self.cache.layout
        epoch = self.cache.epoch(tenant.name) if epoch is None else epoch
        return chunk_refs(
            self._root(tenant, epoch),
            tokens,
            layout.chunk_tokens,
            layout.key_tokens,
            tenant.name,
            epoch,
        )

    def check_integrity(self) -> None:
        """INV-5 of every pool here, and every chunk against its checksums.

        Raises:
            DamagedChunks: the books balance, and bytes are not what they should be.
            GeokvError: names what does not balance.
        """
        self.loop.check_integrity()
        self.cache.check_integrity(deep=True)

    async def aclose(self) -> None:
        """End the loop, the cache with its connections, and the device."""
        await self.loop.aclose()
        await self.cache.close()
        await self.engine.compute.aclose()

    def _root(self, tenant: Tenant, epoch: int) -> bytes:
        return root_key(self.engine.model.fingerprint, tenant.salt, epoch=epoch)

    def _forget(self, tenant: str) -> None:
        """What the device has of a tenant is purged: nothing finds it any more, and it goes
        when the last sequence that reads it ends."""
        for root in self._roots.pop(tenant, {}):
            self._old_roots[root] = None
            self.engine.flush(root)

    def _is_hidden(self, root: bytes) -> bool:
        """Must a prefix on the device not be shared with anybody new?"""
        return root in self._old_roots or self.cache.fenced

    # -- the way in ------------------------------------------------------------

    def _prompt(self, ask: Ask, record: RequestRecord) -> Prompt:
        reuse = self.reuse
        epoch = self.cache.epoch(ask.tenant.name)
        root = self._root(ask.tenant, epoch)
        self._roots.setdefault(ask.tenant.name, {})[root] = None
        if reuse == "none":
            return Prompt(ask.tokens, root, ask.params, ask.deadline_ns, reuse=False)
        return Prompt(
            ask.tokens,
            root,
            ask.params,
            ask.deadline_ns,
            load=lambda seq: self._bring(seq, ask, reuse, record, epoch),
            on_done=lambda seq: self._store_later(seq, ask, epoch),
        )

    async def _bring(
        self,
        seq: EngineSequence,
        ask: Ask,
        reuse: Reuse,
        record: RequestRecord,
        epoch: int,
    ) -> None:
        """Fill blocks from the tiers and sites beyond the device, and stamp each step."""
        layout = self.cache.layout
        refs = self._missing_refs(seq, ask, reuse, epoch)
        if self._audit:
            self._note_device(seq, ask, epoch)
        plan = None
        deadline_ns = min(ask.deadline_ns, now_ns() + self._fetch_deadline_ns)
        if refs:
            plan = await self.cache.lookup(refs, deadline_ns, ask.request_id)
            record.misses.update(plan.misses)
        record.looked_up_ns = record.last_byte_ns = record.usable_ns = now_ns()
        if plan is None or not plan.refs:
            return
        skip = seq.device_tokens % layout.chunk_tokens
        blocks = self.engine.reserve(seq, len(plan.refs) * layout.chunk_tokens - skip)
        if self._layered:
            layers = LayerFiller(self.engine, seq, layout, blocks, skip, self._copy_bytes_per_token)
            try:
                outcome = await self.cache.fetch_layered(
                    plan, deadline_ns, layers.take, layers.end_group
                )
            finally:
                layers.close()
        else:
            filler = BlockFiller(self.engine, seq, layout, blocks, skip, self._copy_bytes_per_token)
            try:
                outcome = await self.cache.fetch(plan, deadline_ns, filler.take)
            finally:
                self.engine.rollback(seq)
        record.misses.update(outcome.misses)
        record.chunks_local = outcome.local_chunks + outcome.merged_chunks
        record.chunks_disk = outcome.disk_chunks
        record.chunks_remote = outcome.remote_chunks
        record.chunks_by_site = dict(outcome.sites)
        record.wire_bytes = outcome.wire_bytes
        if outcome.remote_chunks:
            record.last_byte_ns = outcome.last_byte_ns
            record.usable_ns = outcome.verified_ns
        if outcome.missed_ns > record.usable_ns:
            # What never came was waited for like what came: that is no loading.
            record.last_byte_ns = record.usable_ns = outcome.missed_ns

    def _missing_refs(
        self, seq: EngineSequence, ask: Ask, reuse: Reuse, epoch: int
    ) -> list[ChunkRef]:
        """Full chunks beyond the device's prefix; one token always stays to be computed."""
        layout = self.cache.layout
        usable = (len(ask.tokens) - 1) // layout.chunk_tokens
        first = seq.device_tokens // layout.chunk_tokens
        if first >= usable:
            return []
        refs = self.chunks(ask.tenant, ask.tokens[: usable * layout.chunk_tokens], epoch)[first:]
        if reuse == "remote":
            return refs
        here = next((i for i, ref in enumerate(refs) if ref.key not in self.cache.tiers), len(refs))
        return refs[:here]

    def _note_device(self, seq: EngineSequence, ask: Ask, epoch: int) -> None:
        """Whole chunks that the device has already; what the blocks hold is not compared,
        since real models compute the same KV with other last bits in another batch."""
        whole = seq.device_tokens // self.cache.layout.chunk_tokens
        for ref in self.chunks(ask.tenant, ask.tokens, epoch)[:whole]:
            self.cache.note_device_use(ref, ask.request_id)

    # -- the way out -----------------------------------------------------------

    def _store_later(self, seq: EngineSequence, ask: Ask, epoch: int) -> None:
        # Of the epoch in which the request came: what it was given may have been purged since.
        refs = self.chunks(ask.tenant, ask.tokens, epoch)
        wanted = [(i, ref) for i, ref in enumerate(refs) if ref.key not in self.cache.tiers]
        if not wanted:
            return
        # The twin keeps the blocks alive while the answer's own sequence is closed.
        twin = self.engine.fork(seq)
        task = asyncio.get_running_loop().create_task(self._store(twin, wanted, ask.request_id))
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    async def _store(
        self, twin: EngineSequence, wanted: list[tuple[int, ChunkRef]], request_id: str
    ) -> None:
        layout = self.cache.layout
        per_chunk = layout.chunk_tokens // layout.block_tokens
        stored = []
        try:
            for index, ref in wanted:
                blocks = twin.blocks[index * per_chunk : (index + 1) * per_chunk]
                await self.engine.compute.copy(
                    layout.chunk_tokens * self._copy_bytes_per_token, 1, "device_to_host"
                )

                def fill(memory: memoryview, blocks: list[int] = blocks) -> None:
                    gather = partial(self.engine.pool.gather, blocks)
                    write_payload(memory, layout, gather)

                if await self.cache.store(ref, fill, publish=False, request_id=request_id):
                    stored.append(ref.key)
            await self.cache.publish(stored)
        finally:
            self.engine.close(twin, keep=False)

    def _complete(self, record: RequestRecord, request: Request) -> None:
        """What the loop knows of a request that has ended."""
        stamps = request.stamps
        record.admitted_ns = stamps.admitted_ns
        # Where computing began before all was here, only what was left of it afterwards shows.
        record.loaded_ns = min(stamps.loaded_ns, stamps.prefilled_ns or stamps.loaded_ns)
        # Where nothing was looked up, that step ended where it began.
        record.looked_up_ns = record.looked_up_ns or stamps.admitted_ns
        record.last_byte_ns = record.last_byte_ns or stamps.admitted_ns
        record.usable_ns = record.usable_ns or stamps.admitted_ns
        record.scheduled_ns = max(stamps.scheduled_ns, record.loaded_ns)
        record.prefilled_ns = stamps.prefilled_ns
        record.finished_ns = stamps.finished_ns
        record.device_tokens = request.device_tokens
        record.cached_tokens = request.cached_tokens
        record.preemptions = request.preemptions
