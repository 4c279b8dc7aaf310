"""Forgetting everything of a tenant, everywhere, within a bound that a partition cannot move.

One site is the authority (the directory's). It numbers each purge, writes it down, and
says its newest number with every heartbeat. Whoever hears of one he lacks fetches the
log, forgets what it names, and says with his own beats how far he has come. A purge is
**acknowledged** when all sites have come that far, or ``bound`` after it was written
down, whichever is first.

The second is safe because of the fence. A site may use and serve chunks only until
``bound`` after it *sent* the last beat that the authority has answered, and only an
answer whose newest number the site has applied counts. Whatever the authority answered
before a purge, it answered to a beat sent before that purge: so ``bound`` after the
purge every site has either applied it or is fenced. It stands on clocks that run at one
rate, within ``DRIFT``; it does not matter what they show.

Nothing that is purged comes back: a purge's number is the tenant's **epoch** from then
on. It is in the root of the tenant's keys and in the header of each chunk, and a chunk
of another epoch is neither kept, used nor sent, whenever it turns up.

Longer than most: the argument above is about one machine of numbers and stamps, and holds only as
long as all of its steps can be read together.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from geokv.cache.history import History
from geokv.cache.lifetime.purge_log import Purged, PurgeLog
from geokv.cache.membership import Membership
from geokv.cache.substrate.transport import Caller, Handler
from geokv.clock import now_ns
from geokv.errors import CacheError, ConfigError, RecordError
from geokv.units import NS_PER_S

DRIFT = 0.01
"""By how much two sites' clocks may differ in rate."""
_ASK, _LOG = "purge.ask", "purge.log"
_COUNTED_LIVES = 1 << 40
"""Incarnations below this are counted, above they are clocks."""
_LOOK_NS = 10_000_000


class Calls(Protocol):
    """What of a transport is needed here."""

    @property
    def incarnation(self) -> int:
        """Of this site's process; greater than that of any earlier life."""

    async def call(self, site: str, method: str, body: bytes, deadline_ns: int) -> bytes:
        """One small request to a handler of ``site``; FetchError when no answer comes in time."""


class Heads(msgspec.Struct, frozen=True, array_like=True):
    """What goes with every beat.

    Args:
        head: newest purge that the sender has applied; of the authority, that there is.
        acked: newest purge that is acknowledged, as far as the sender knows.
        by_bound: newest of those that somebody had not confirmed when its bound had passed.
    """

    head: int = 0
    acked: int = 0
    by_bound: int = 0


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """Purge this."""

    tenant: str
    purge_id: str


class LogTail(msgspec.Struct, frozen=True, array_like=True):
    """Purges in order, and the newest there is."""

    entries: tuple[Purged, ...]
    head: int


@dataclass(frozen=True)
class Receipt:
    """A purge that is acknowledged.

    Attributes:
        by: ``confirmed`` by all sites, or ``bound``: those that have not are fenced.
        took_ns: from the moment it was written down, as the asking site can tell.
    """

    purge_id: str
    seq: int
    by: str
    took_ns: int


class Purger:
    """One site's part in purges.

    Args:
        authority: name of the site that numbers them.
        sites: all others, as they become known; the list is the caller's and may grow.
        path: of the log; the authority's alone is kept on the medium.
        forget: drops everything of a tenant that is older than an epoch.

    Raises:
        ConfigError: the bound is shorter than finding out that a site is down.
        CacheError: the log cannot be read.
    """

    def __init__(
        self,
        site: str,
        authority: str,
        bound_s: float,
        membership: Membership,
        transport: Calls,
        sites: list[str],
        path: Path | None,
        history: History,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        forget: Callable[[str, int], None],
    ) -> None:
        beats = membership.settings
        if bound_s < beats.period_s * (beats.misses + 1):
            raise ConfigError(
                f"purge.bound: must be ≥ membership's period x (misses + 1), "
                f"{beats.period_s * (beats.misses + 1):g} s, got {bound_s:g} s",
                "a site must be able to miss some beats without being fenced",
            )
        self.bound_ns = round(bound_s * NS_PER_S)
        self.counters: Counter[str] = Counter()
        self._site = site
        self._authority = authority
        self._membership = membership
        self._transport = transport
        self._sites = sites
        self._history = history
        self._spawn = spawn
        self._forget = forget
        self._log = PurgeLog(path if self.is_authority else None)
        self._until_ns = 0
        self._was_fenced = not self.is_authority
        self._fetching: asyncio.Task[None] | None = None
        self._confirmed: dict[str, int] = {}
        self._acked = self._by_bound = 0
        """At a site that is not the authority: as it was told."""
        started_ns = now_ns()
        self._taken_ns = {entry.seq: started_ns for entry in self._log.after(0)}
        membership.say = self._say
        membership.hear = self._hear

    @property
    def is_authority(self) -> bool:
        """Does this site number the purges?"""
        return self._site == self._authority

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Calls that this site must answer."""
        return {_LOG: self._tail, **({_ASK: self._asked} if self.is_authority else {})}

    def epoch(self, tenant: str) -> int:
        """What a chunk of ``tenant`` must carry to be used here."""
        return self._log.epoch(tenant)

    @property
    def fenced(self) -> bool:
        """Is it too long since the authority was heard of? Then nothing may be used."""
        fenced = not self.is_authority and now_ns() >= self._until_ns
        if fenced != self._was_fenced:
            self._was_fenced = fenced
            self.counters["fenced" if fenced else "unfenced"] += 1
            why = "the authority of purges was not heard of in time" if fenced else "it was heard"
            self._history.note("fenced" if fenced else "unfenced", why=why)
        return fenced

    # -- asking ----------------------------------------------------------------

    async def purge(self, tenant: str, purge_id: str, deadline_ns: int) -> Receipt:
        """Forget everything of ``tenant``, everywhere; returns when it is acknowledged.

        Raises:
            CacheError: the authority cannot be reached, so nothing was purged; or it is
                written down and not acknowledged by the deadline.
        """
        if self.is_authority:
            entry = self._take(tenant, purge_id)
        else:
            body = msgspec.msgpack.encode(Ask(tenant, purge_id))
            answer = await self._transport.call(self._authority, _ASK, body, deadline_ns)
            entry = _decode(answer, Purged)
        written_ns = now_ns()
        while (by := self._acknowledged(entry.seq)) == "":
            left_ns = deadline_ns - now_ns()
            if left_ns <= 0:
                raise CacheError(
                    f"the purge {purge_id!r} is written down, but was not acknowledged in time",
                    f"it holds everywhere {self.bound_ns / NS_PER_S:g} s after it was written",
                )
            await asyncio.sleep(min(left_ns, _LOOK_NS) / NS_PER_S)
        return Receipt(purge_id, entry.seq, by, now_ns() - written_ns)

    def _acknowledged(self, seq: int) -> str:
        if not self.is_authority:
            if self._acked < seq:
                return ""
            return "bound" if self._by_bound >= seq else "confirmed"
        if all(self._confirmed.get(site, 0) >= seq for site in self._sites):
            return "confirmed"
        return "bound" if now_ns() >= self._taken_ns[seq] + self.bound_ns else ""

    # -- the authority ---------------------------------------------------------

    async def _asked(self, caller: Caller, body: bytes) -> bytes:
        ask = _decode(body, Ask)
        return msgspec.msgpack.encode(self._take(ask.tenant, ask.purge_id))

    async def _tail(self, caller: Caller, body: bytes) -> bytes:
        since = _decode(body, int)
        entries = tuple(self._log.after(since))
        return msgspec.msgpack.encode(LogTail(entries, self._log.head))

    def _take(self, tenant: str, purge_id: str) -> Purged:
        known = self._log.known(purge_id)
        if known is not None:
            return known
        life = self._transport.incarnation
        # Above all of earlier lives, even if their log has been lost.
        first = life << 20 if life < _COUNTED_LIVES else life
        entry = Purged(max(first, self._log.head) + 1, tenant, purge_id)
        self._history.note("purge", scope=tenant, purge_id=purge_id, phase="heard", seq=entry.seq)
        self._log.add([entry])
        # What was answered before this moment is answered to what was sent before it.
        self._taken_ns[entry.seq] = now_ns()
        self._apply(entry)
        self._membership.beat_now()
        return entry

    # -- everybody -------------------------------------------------------------

    def _apply(self, entry: Purged) -> None:
        self._forget(entry.tenant, entry.seq)
        self.counters["purges"] += 1
        self._history.note(
            "purge", scope=entry.tenant, purge_id=entry.purge_id, phase="done", seq=entry.seq
        )

    def _say(self, peer: str) -> bytes:
        acked = self._acked
        if self.is_authority:
            acked = self._acked = self._newest_acked()
        return msgspec.msgpack.encode(Heads(self._log.head, acked, self._by_bound))

    def _newest_acked(self) -> int:
        newest = self._acked
        for entry in self._log.after(newest):
            by = self._acknowledged(entry.seq)
            if not by:
                break
            newest = entry.seq
            if by == "bound":
                self._by_bound = newest
        return newest

    def _hear(self, peer: str, incarnation: int, said: bytes, sent_ns: int) -> None:
        try:
            heads = msgspec.msgpack.decode(said, type=Heads)
        except msgspec.DecodeError:
            self.counters["refused"] += 1
            return
        if self.is_authority:
            self._confirmed[peer] = max(self._confirmed.get(peer, 0), heads.head)
            if heads.head > self._log.head:
                # Our log was lost. What the others know of it is asked back.
                self._fetch_soon(peer)
        elif peer == self._authority:
            self._acked = max(self._acked, heads.acked)
            self._by_bound = max(self._by_bound, heads.by_bound)
            if heads.head > self._log.head:
                self._fetch_soon(peer)
            elif sent_ns:
                self._renew(sent_ns)

    def _fetch_soon(self, peer: str) -> None:
        if self._fetching is None or self._fetching.done():
            self._fetching = self._spawn(self._fetch(peer))

    def _renew(self, sent_ns: int) -> None:
        """The authority has answered what was sent then, and knows of no newer purge."""
        self._until_ns = max(self._until_ns, sent_ns + round(self.bound_ns * (1 - DRIFT)))
        if self._was_fenced:
            _ = self.fenced

    async def _fetch(self, peer: str) -> None:
        """Learn what was purged, and forget it."""
        body = msgspec.msgpack.encode(self._log.head)
        sent_ns = now_ns()
        try:
            answer = await self._transport.call(peer, _LOG, body, sent_ns + self.bound_ns)
            tail = _decode(answer, LogTail)
            new = self._log.add(tail.entries)
        except CacheError:
            self.counters["fetch-failed"] += 1
            return
        for entry in new:
            self._taken_ns[entry.seq] = now_ns()
            self._history.note(
                "purge", scope=entry.tenant, purge_id=entry.purge_id, phase="heard", seq=entry.seq
            )
            self._apply(entry)
        if tail.head <= self._log.head:
            self._renew(sent_ns)
        self._membership.beat_now()

    def stats(self) -> dict[str, Any]:
        """How far this site and, at the authority, the others have come."""
        return {
            "authority": self._authority,
            "bound_ns": self.bound_ns,
            "head": self._log.head,
            "acked": self._newest_acked() if self.is_authority else self._acked,
            "confirmed": dict(self._confirmed),
            "fenced": self.fenced,
            "counters": dict(self.counters),
        }


def _decode(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"not a message about purges ({error})") from None
