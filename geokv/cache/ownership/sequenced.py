"""A site's way to a table that is kept in step: events are numbered, and both ends compare.

What is lost on the way, told twice or overtaken, and a table that began anew, are found
by the next event, the next answer or the next comparison, whichever is first; then the
site tells all it has in one piece. So the table comes to agree with the sites after any
outage within ``anti_entropy`` and a round trip, or at once when the outage's end is seen.

Longer than most: numbering, comparing and telling anew must not interleave, and share one state.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from geokv.cache.history import History
from geokv.cache.ownership.directory import Spawn
from geokv.cache.ownership.sequenced_table import SequencedTable, key_sum
from geokv.cache.ownership.traffic import Traffic
from geokv.cache.substrate import Handler, Transport
from geokv.cache.substrate.transport import Caller
from geokv.clock import now_ns
from geokv.errors import CacheError, ConfigError, RecordError
from geokv.units import NS_PER_S

_METHOD = "directory.say"
_EPOCHS_PER_LIFE = 1 << 16
_MOST_KEYS = 32_768
Op = Literal["publish", "withdraw", "resync", "compare", "locate"]


class Say(msgspec.Struct, frozen=True, array_like=True):
    """What a site tells or asks the table.

    Args:
        seq: number of an event; of a comparison that of the next one.
        more: of a resync: further parts follow.
        total: of a comparison: ``key_sum`` of all keys, 16 bytes.
    """

    op: Op
    seq: int
    keys: tuple[bytes, ...] = ()
    more: bool = False
    count: int = 0
    total: bytes = b""


class Told(msgspec.Struct, frozen=True, array_like=True):
    """The table's answer: its epoch, whether it is in step, and the sites of each key."""

    epoch: int
    in_step: bool
    sites: tuple[tuple[str, ...], ...] = ()


class SequencedDirectory:
    """A site's way to the table.

    Args:
        host_site: the site that keeps the table; that site answers itself locally.
        anti_entropy_s: between two comparisons.

    Attributes:
        deliver: takes an event to the table; what a drill loses or repeats on the way
            it does here.

    Raises:
        ConfigError: comparisons without a pause.
    """

    def __init__(self, host_site: str, anti_entropy_s: float) -> None:
        if anti_entropy_s < 0.001:
            raise ConfigError(f"directory.anti_entropy: must be ≥ 1 ms, got {anti_entropy_s:g} s")
        self.host_site = host_site
        self.table: SequencedTable | None = None
        self.deliver: Callable[[Say, int], Awaitable[Told | None]] = self._say
        self._period_ns = round(anti_entropy_s * NS_PER_S)
        self._site = ""
        self._transport: Transport | None = None
        self._history = History("", None, now_ns)
        self._spawn: Spawn | None = None
        self._here: Callable[[bytes], bool] = lambda key: True
        self._calls: Counter[str] = Counter()
        self._traffic = Traffic()
        self._model: dict[bytes, None] = {}
        """What the table has, if it has heard all that was told."""
        self._total = 0
        self._seq = 0
        self._epoch = 0
        self._starts = 0
        self._kept: SequencedTable | None = None
        self._parts: dict[str, tuple[int, int, list[bytes]]] = {}
        self._resyncing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # -- life ------------------------------------------------------------------

    def bind(self, site: str, transport: Transport) -> Mapping[str, Handler]:
        self._site = site
        self._transport = transport
        if site != self.host_site:
            return {}
        self.start_table("empty")
        return {_METHOD: self._heard}

    def attach(
        self,
        history: History,
        spawn: Spawn,
        here: Callable[[bytes], bool],
        found: Sequence[bytes] = (),
    ) -> None:
        self._history = history
        self._spawn = spawn
        self._here = here
        # The first comparison differs by these, and then all is told.
        for key in found:
            self._model[key] = None
            self._total = key_sum(self._total, key)
        self._tick_later()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def peer_down(self, site: str) -> None:
        if self.table is not None:
            self.table.forget(site)

    def peer_up(self, site: str) -> None:
        if site == self.host_site and self._spawn is not None:
            self._spawn(self._compare())

    # -- what a site says and asks ---------------------------------------------

    async def join(self, deadline_ns: int) -> None:
        self._calls["join"] += 1
        await self._compare_by(deadline_ns)

    async def publish(self, keys: Sequence[bytes], deadline_ns: int) -> int:
        return await self._event("publish", keys, deadline_ns)

    async def withdraw(self, keys: Sequence[bytes], deadline_ns: int) -> int:
        return await self._event("withdraw", keys, deadline_ns)

    async def locate(self, keys: Sequence[bytes], deadline_ns: int) -> list[tuple[str, ...]]:
        self._calls["locate"] += 1
        told = await self._say(Say("locate", 0, tuple(keys)), deadline_ns)
        self._look_at(told)
        if len(told.sites) != len(keys):
            raise RecordError(f"the directory answered {len(told.sites)} of {len(keys)} keys")
        return list(told.sites)

    def entries(self) -> dict[bytes, tuple[str, ...]] | None:
        return self.table.entries() if self.table is not None else None

    def stats(self) -> dict[str, Any]:
        return {
            "kind": "central",
            "host_site": self.host_site,
            "entries": len(self.table) if self.table is not None else None,
            "told": len(self._model),
            "seq": self._seq,
            "calls": dict(self._calls),
            "traffic": self._traffic.stats(),
            **(self.table.stats() if self.table is not None else {"epoch": self._epoch}),
        }

    def check_integrity(self) -> None:
        """The table's two indexes agree, at the site that keeps it."""
        if self.table is not None:
            self.table.check_integrity()

    # -- the table's own life --------------------------------------------------

    def stop_table(self) -> None:
        """The table answers nobody any more. What it knew is kept for a stale restart."""
        self._kept, self.table = self.table or self._kept, None

    def keep_table(self) -> None:
        """Remember what the table knows now, for a stale restart later."""
        if self.table is not None:
            self._kept = self.table.copied(self.table.epoch)

    def start_table(self, how: Literal["empty", "stale"]) -> None:
        """Begin a new table, with nothing or with what was kept.

        Raises:
            CacheError: this site keeps no table, or nothing was kept.
        """
        if self._site != self.host_site or self._transport is None:
            raise CacheError(f"{self._site!r} does not keep the directory")
        if how == "stale" and self._kept is None:
            raise CacheError("nothing was kept of the directory", "keep or stop it first")
        self._starts += 1
        epoch = self._transport.incarnation * _EPOCHS_PER_LIFE + self._starts
        kept, self._kept = self._kept, None
        if how == "stale" and kept is not None:
            self.table = kept.copied(epoch)
        else:
            self.table = SequencedTable(epoch, self._history)
        self._parts.clear()

    # -- events ----------------------------------------------------------------

    async def _event(
        self, op: Literal["publish", "withdraw"], keys: Sequence[bytes], deadline_ns: int
    ) -> int:
        self._calls[op] += 1
        await self._after_resync()
        self._seq += 1
        seq = self._seq
        for key in dict.fromkeys(keys):
            if (key in self._model) == (op == "withdraw"):
                self._total = key_sum(self._total, key)
                if op == "publish":
                    self._model[key] = None
                else:
                    del self._model[key]
        told = await self.deliver(Say(op, seq, tuple(keys)), deadline_ns)
        if told is not None:
            self._look_at(told)
        return seq

    async def _after_resync(self) -> None:
        # What is told of a moment must not be overtaken by what came later.
        while self._resyncing is not None and not self._resyncing.done():
            await asyncio.shield(asyncio.wait([self._resyncing]))

    async def _say(self, say: Say, deadline_ns: int) -> Told:
        if self._transport is None:
            raise CacheError("the directory is not bound to a site yet")
        if self._site == self.host_site:
            return self._apply(Caller(self._site, self._transport.incarnation), say)
        body = msgspec.msgpack.encode(say)
        answer = await self._traffic.call(
            self._transport, self.host_site, _METHOD, body, deadline_ns, say.op
        )
        told: Told = _decode(answer, Told)
        return told

    async def _heard(self, caller: Caller, body: bytes) -> bytes:
        return msgspec.msgpack.encode(self._apply(caller, _decode(body, Say)))

    def _apply(self, caller: Caller, say: Say) -> Told:
        table = self.table
        if table is None:
            raise CacheError("the directory is down")
        site, life = caller.site, caller.incarnation
        if say.op == "locate":
            found = table.locate(say.keys)
            return Told(table.epoch, table.knows(site, life), tuple(found))
        if say.op == "compare":
            total = int.from_bytes(say.total, "big")
            return Told(table.epoch, table.compare(site, life, say.seq, say.count, total))
        if say.op == "resync":
            return Told(table.epoch, self._take_part(table, caller, say))
        return Told(table.epoch, table.event(site, life, say.seq, say.op, say.keys))

    def _take_part(self, table: SequencedTable, caller: Caller, say: Say) -> bool:
        """One part of all that a site has; nothing of it counts before the last has come."""
        life, seq, keys = self._parts.pop(caller.site, (0, 0, []))
        if (life, seq) != (caller.incarnation, say.seq):
            keys = []
        keys.extend(say.keys)
        if say.more:
            self._parts[caller.site] = (caller.incarnation, say.seq, keys)
        else:
            table.resync(caller.site, caller.incarnation, say.seq, keys)
        return True

    # -- staying in step -------------------------------------------------------

    def _look_at(self, told: Told) -> None:
        """Has the table missed something, or begun anew?"""
        anew = self._began_anew(told.epoch)
        self._epoch = told.epoch
        if anew or not told.in_step:
            self._resync_soon()

    def _began_anew(self, epoch: int) -> bool:
        return bool(self._epoch) and epoch != self._epoch

    def _resync_soon(self) -> None:
        if self._spawn is not None and (self._resyncing is None or self._resyncing.done()):
            self._calls["resync"] += 1
            self._resyncing = self._spawn(self._resync())

    async def _resync(self) -> None:
        """Tell all that is here; if that fails the next comparison finds out."""
        self._model = {key: None for key in self._model if self._here(key)}
        self._total = 0
        for key in self._model:
            self._total = key_sum(self._total, key)
        self._seq += 1
        keys, seq = tuple(self._model), self._seq
        deadline_ns = now_ns() + self._period_ns + NS_PER_S
        try:
            for start in range(0, max(1, len(keys)), _MOST_KEYS):
                part = keys[start : start + _MOST_KEYS]
                more = start + _MOST_KEYS < len(keys)
                told = await self._say(Say("resync", seq, part, more), deadline_ns)
            self._epoch = told.epoch
        except CacheError:
            self._calls["resync-failed"] += 1

    async def _compare(self) -> None:
        try:
            await self._compare_by(now_ns() + self._period_ns + NS_PER_S)
        except CacheError:
            self._calls["compare-failed"] += 1

    async def _compare_by(self, deadline_ns: int) -> None:
        """Ask whether the table has what it was told, and put right what is not so here."""
        await self._after_resync()
        gone = [key for key in self._model if not self._here(key)]
        if gone:
            await self.withdraw(gone, deadline_ns)
        count, total = len(self._model), self._total.to_bytes(16, "big")
        say = Say("compare", self._seq + 1, (), False, count, total)
        self._look_at(await self._say(say, deadline_ns))

    def _tick_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at((now_ns() + self._period_ns) / NS_PER_S, self._tick)

    def _tick(self) -> None:
        self._tick_later()
        if self._spawn is not None:
            self._calls["compare"] += 1
            self._spawn(self._compare())


def _decode(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"not a directory message ({error})") from None
