"""Heartbeats between all sites, and who is down by them.

A site sends each other one a beat every ``period`` and gets an answer to each. It marks
a peer down when ``misses`` beats in a row have had none: at the latest

    period x misses + one round trip

after the peer, or the way to it in either direction, ceased to be. A peer that is down
is left alone but for one beat each ``cooldown``; the first answer brings it back.
Beats are datagrams of their own: no connection's queue holds them up (the line's does,
and the round trip has it in), and no retransmission timer that has grown during an
outage delays the news of its end.

A new incarnation of a peer ends everything that was under way with the old one.

Longer than most: sending, hearing and judging are one state machine per peer, whose every step
depends on the others' stamps.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from geokv.cache.membership.beat import Beat, beat_key, pack, sender, unpack
from geokv.cache.membership.settings import MembershipSettings
from geokv.clock import now_ns
from geokv.errors import CacheError, RecordError
from geokv.units import NS_PER_S

_REMEMBERED = 64
_SLACK_NS = 2_000_000
"""asyncio's timers are up to a millisecond late, at both ends."""


@dataclass(eq=False)
class _Member:
    site: str
    address: tuple[str, int]
    key: bytes
    incarnation: int = 0
    heard_seq: int = 0
    seq: int = 0
    sent: dict[int, int] = field(default_factory=dict)
    answered_ns: int = 0
    """When the newest beat that was answered had been sent."""
    rtt_ns: int = 0
    spread_ns: int = 0
    up: bool = True
    down_ns: int = 0
    probed_ns: int = 0
    met: bool = False
    timer: asyncio.TimerHandle | None = None


class Membership:
    """This site's view of its peers. A peer counts as up until it is known to be down.

    Args:
        on_down: told (site, cause, incarnation): ``silent`` or ``new-life``.
        on_up: told (site, incarnation).

    Attributes:
        say: what is to be told to a peer with the next beat.
        hear: told (site, incarnation, what a peer's beat said, when this site had sent
            what that answers, or 0 where it answers nothing).
    """

    def __init__(
        self,
        site: str,
        incarnation: int,
        settings: MembershipSettings,
        pair_key: Callable[[str], bytes],
        on_down: Callable[[str, str, int], None],
        on_up: Callable[[str, int], None],
    ) -> None:
        self.settings = settings
        self.epoch = 0
        self.counters: Counter[str] = Counter()
        self.say: Callable[[str], bytes] = lambda peer: b""
        self.hear: Callable[[str, int, bytes, int], None] = lambda *_: None
        self._site = site
        self._incarnation = incarnation
        self._pair_key = pair_key
        self._on_down = on_down
        self._on_up = on_up
        self._members: dict[str, _Member] = {}
        self._period_ns = round(settings.period_s * NS_PER_S)
        self._cooldown_ns = round(settings.cooldown_s * NS_PER_S)
        self._sock: socket.socket | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._tick_ns = 0

    # -- life ------------------------------------------------------------------

    def start(self, host: str, port: int) -> None:
        """Listen and begin to beat.

        Raises:
            CacheError: the address cannot be bound.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            sock.bind((host, port))
        except OSError as error:
            sock.close()
            raise CacheError(
                f"heartbeats cannot be heard on {host}:{port}/udp ({error.strerror})",
                "the KV server's port must be free for datagrams, too",
            ) from None
        self._sock = sock
        loop = asyncio.get_running_loop()
        loop.add_reader(sock, self._readable)
        self._tick_ns = now_ns()
        self._tick()

    def add(self, site: str, host: str, port: int) -> None:
        """One more peer; it has ``misses`` beats to show itself."""
        member = _Member(site, (host, port), beat_key(self._pair_key(site)))
        self._members[site] = member
        if self._sock is not None:
            self._watch(member)
            self._beat(member)

    def close(self) -> None:
        """Beat no more."""
        if self._ticking is not None:
            self._ticking.cancel()
        for member in self._members.values():
            if member.timer is not None:
                member.timer.cancel()
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock)
            self._sock.close()
            self._sock = None

    # -- what is known ---------------------------------------------------------

    def up(self, site: str) -> bool:
        """False while a peer is down."""
        return self._members[site].up

    def lives(self) -> dict[str, int]:
        """Incarnation by peer, of those that are up and have been heard of."""
        return {m.site: m.incarnation for m in self._members.values() if m.up and m.incarnation}

    def beat_now(self) -> None:
        """Something is to be said that cannot wait for the next beat."""
        for member in self._members.values():
            if member.up:
                self._beat(member)

    def stats(self) -> dict[str, Any]:
        """Settings, the detection time that follows from them, and every peer."""
        return {
            "period_s": self.settings.period_s,
            "misses": self.settings.misses,
            "cooldown_s": self.settings.cooldown_s,
            "epoch": self.epoch,
            "counters": dict(self.counters),
            "peers": {
                member.site: {
                    "up": member.up,
                    "incarnation": member.incarnation,
                    "rtt_ns": member.rtt_ns,
                    "detection_ns": self._patience_ns(member),
                }
                for member in self._members.values()
            },
        }

    # -- beating ---------------------------------------------------------------

    def _tick(self) -> None:
        now = now_ns()
        if now - self._tick_ns > self._patience_floor_ns:
            # It is this process that has slept: what it has not heard says nothing.
            self.counters["slept"] += 1
            for member in self._members.values():
                member.answered_ns = max(member.answered_ns, now)
        for member in self._members.values():
            if member.timer is None and member.up:
                self._watch(member)
            if member.up or now - member.probed_ns >= self._cooldown_ns - self._period_ns // 2:
                self._beat(member)
        # On a grid, whatever the delay of a timer.
        missed = max(0, now - self._tick_ns) // self._period_ns
        self._tick_ns += (missed + 1) * self._period_ns
        self._ticking = asyncio.get_running_loop().call_at(self._tick_ns / NS_PER_S, self._tick)

    @property
    def _patience_floor_ns(self) -> int:
        return self._period_ns * self.settings.misses // 2 + _SLACK_NS

    def _beat(self, member: _Member) -> None:
        member.seq += 1
        now = member.probed_ns = now_ns()
        member.sent[member.seq] = now
        if len(member.sent) > _REMEMBERED:
            del member.sent[next(iter(member.sent))]
        said = self.say(member.site)
        self._send(member, Beat(False, self._incarnation, member.seq, 0, self.epoch, said))

    def _send(self, member: _Member, beat: Beat) -> None:
        if self._sock is None:
            return
        try:
            self._sock.sendto(pack(beat, member.key, self._site, member.site), member.address)
        except OSError as error:
            # As good as lost on the way: no route, no buffer, or nobody listens there.
            self.counters[f"send: {error.strerror}"] += 1

    # -- hearing ---------------------------------------------------------------

    def _readable(self) -> None:
        while self._sock is not None:
            try:
                data = self._sock.recv(65536)
            except BlockingIOError:
                return
            except OSError as error:
                self.counters[f"receive: {error.strerror}"] += 1
                return
            try:
                member = self._members.get(sender(data))
                if member is None:
                    raise RecordError("a heartbeat of nobody we know")
                self._heard(member, unpack(data, member.key, self._site))
            except RecordError:
                self.counters["refused"] += 1

    def _heard(self, member: _Member, beat: Beat) -> None:
        if beat.incarnation < member.incarnation:
            self.counters["old-life"] += 1
            return
        if beat.incarnation > member.incarnation:
            self._new_life(member, beat.incarnation)
        if beat.answer:
            self._answered(member, beat)
            return
        if beat.seq <= member.heard_seq:
            self.counters["old"] += 1
            return
        member.heard_seq = beat.seq
        answer = Beat(
            True,
            self._incarnation,
            beat.seq,
            beat.incarnation,
            self.epoch,
            self.say(member.site),
        )
        self._send(member, answer)
        self.hear(member.site, beat.incarnation, beat.said, 0)
        if not member.up and now_ns() - member.probed_ns >= self._period_ns:
            # It can reach us again: see whether we can reach it.
            self._beat(member)

    def _answered(self, member: _Member, beat: Beat) -> None:
        sent_ns = member.sent.pop(beat.seq, 0) if beat.to == self._incarnation else 0
        if not sent_ns:
            self.counters["old"] += 1
            return
        self._measure(member, now_ns() - sent_ns)
        member.answered_ns = max(member.answered_ns, sent_ns)
        if not member.met or (not member.up and sent_ns >= member.down_ns):
            self._came(member)
        self.hear(member.site, beat.incarnation, beat.said, sent_ns)

    def _measure(self, member: _Member, rtt_ns: int) -> None:
        """Smoothed as TCP's own estimate is (RFC 6298, section 2)."""
        if not member.rtt_ns:
            member.rtt_ns, member.spread_ns = rtt_ns, rtt_ns // 2
            return
        off = abs(member.rtt_ns - rtt_ns)
        member.spread_ns += (off - member.spread_ns) // 4
        member.rtt_ns += (rtt_ns - member.rtt_ns) // 8

    # -- changes ---------------------------------------------------------------

    def _patience_ns(self, member: _Member) -> int:
        """From the last beat that was answered to the moment its sender is down."""
        rtt_ns = member.rtt_ns + 4 * member.spread_ns
        return self._period_ns * self.settings.misses + rtt_ns + _SLACK_NS

    def _watch(self, member: _Member) -> None:
        member.answered_ns = member.answered_ns or now_ns()
        due_ns = member.answered_ns + self._patience_ns(member)
        loop = asyncio.get_running_loop()
        member.timer = loop.call_at(due_ns / NS_PER_S, self._due, member)

    def _due(self, member: _Member) -> None:
        member.timer = None
        if not member.up:
            return
        now = now_ns()
        late = now - self._tick_ns > self._patience_floor_ns
        if late or now < member.answered_ns + self._patience_ns(member):
            # The tick that is due first knows what to make of a sleep.
            if not late:
                self._watch(member)
            return
        self._lost(member, "silent")

    def _lost(self, member: _Member, cause: str) -> None:
        member.up = False
        member.down_ns = now_ns()
        member.met = True
        self.epoch += 1
        self.counters[cause] += 1
        self._on_down(member.site, cause, member.incarnation)

    def _came(self, member: _Member) -> None:
        member.up = member.met = True
        self.epoch += 1
        self.counters["up"] += 1
        if member.timer is not None:
            member.timer.cancel()
        self._watch(member)
        self._on_up(member.site, member.incarnation)

    def _new_life(self, member: _Member, incarnation: int) -> None:
        known, member.heard_seq = member.incarnation, 0
        if known and member.up:
            self._lost(member, "new-life")
        member.incarnation = incarnation
        if known:
            self._beat(member)
