"""What lay where: every filling of a place of a site's tiers, as its history tells it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from geokv.measure.checker.history import Event, History

FILLS = ("store", "fetch", "convert", "pushed", "promote", "demote", "found")
"""After these, if they have no cause, a chunk is readable at their site."""
ENDS = ("evict", "drop")
COPIES = (*FILLS, *ENDS, "life")
_OWN_GENERATION = frozenset({"store", "convert", "promote"})


@dataclass(eq=False)
class Filling:
    """One chunk in one place of one tier, during one life of its site."""

    event: Event
    site: str
    key: str
    tier: str
    before: Filling | None
    """What it was made from: the copy that was sent, or that of the other tier."""
    ended: Event | None = None

    def __post_init__(self) -> None:
        self._first: Event = self.event if self.before is None else self.before._first

    @property
    def place(self) -> int | None:
        """Number of its slot in the tier; None where the history has none."""
        place = self.event.get("place")
        return place if isinstance(place, int) and place >= 0 else None

    @property
    def generation(self) -> int | None:
        """Of this site's place; of what came from elsewhere the history has the sender's."""
        return self.event.get("generation") if self.event["op"] in _OWN_GENERATION else None

    @property
    def lineage(self) -> list[Event]:
        """From the first that is known, mostly a ``store``, to this: what brought it from site
        to site. Ways between the tiers of one site are left out."""
        events: list[Event] = []
        one: Filling | None = self
        while one is not None:
            if one.before is None or one.before.site != one.site:
                events.append(one.event)
            one = one.before
        return events[::-1]

    @property
    def computed(self) -> Event | None:
        """The ``store`` it descends from; None if that is not in the history."""
        return self._first if self._first["op"] == "store" else None


class Copies:
    """Follows the events of ``COPIES``, one at a time and in order.

    A life of a site ends when it was killed, or when the next begins; what it had in DRAM
    is then gone, and what it had on its disk is what the next one has ``found``.
    """

    def __init__(self) -> None:
        self._fillings: dict[tuple[str, str, str], list[Filling]] = defaultdict(list)
        self._old: dict[tuple[str, str], Filling] = {}
        """Last filling of a key at a site in the lives before."""

    def take(self, event: Event) -> Filling | None:
        """The filling that this event begins, if it does."""
        op = event["op"]
        if op == "life":
            self._forget(event)
            return None
        if op in ENDS:
            filling = self.last(event["site"], event["key"], event.get("tier", "dram"))
            if filling is not None and filling.ended is None:
                filling.ended = event
            return None
        if op not in FILLS or not _filled(event):
            return None
        return self._begin(event)

    def last(self, site: str, key: str, tier: str | None = None) -> Filling | None:
        """The latest filling of ``key``, ended or not; of any tier if none is given."""
        tiers = ("dram", "disk") if tier is None else (tier,)
        found = [self._fillings.get((site, key, one), ()) for one in tiers]
        latest = [fillings[-1] for fillings in found if fillings]
        return max(latest, key=lambda filling: int(filling.event["t_ns"]), default=None)

    def gone(self, site: str, key: str) -> Filling | None:
        """The copy that went last, where no tier of this life of the site has one any more."""
        latest = [
            fillings[-1]
            for tier in ("dram", "disk")
            if (fillings := self._fillings.get((site, key, tier)))
        ]
        if any(filling.ended is None for filling in latest):
            return None
        return max(latest, key=_end_ns, default=None)

    def all(self, site: str, key: str, tier: str = "dram") -> list[Filling]:
        """Of this life of the site, in order."""
        return self._fillings.get((site, key, tier), [])

    def _begin(self, event: Event) -> Filling:
        op, site, key = event["op"], event["site"], event["key"]
        before = None
        if op in ("fetch", "convert"):
            before = self._ever(event["source"], key)
        elif op == "pushed":
            before = self._ever(event["peer"], key)
        elif op == "promote":
            before = self.last(site, key, "disk") or self._old.get((site, key))
        elif op == "demote":
            before = self.last(site, key, "dram")
        elif op == "found":
            before = self._ever(site, key)
        tier = "disk" if op in ("demote", "found") else "dram"
        filling = Filling(event, site, key, tier, before)
        self._fillings[site, key, tier].append(filling)
        return filling

    def _ever(self, site: str, key: str) -> Filling | None:
        return self.last(site, key) or self._old.get((site, key))

    def _forget(self, event: Event) -> None:
        # A site that begins to serve has already said what it found on its disk.
        gone = {"killed": ("dram", "disk"), "ended": ("dram", "disk"), "serving": ("dram",)}.get(
            event.get("phase", ""), ()
        )
        if not gone:
            return
        for where in [w for w in self._fillings if w[0] == event["site"] and w[2] in gone]:
            last = self._fillings.pop(where)[-1]
            last.ended = last.ended or event
            self._old[where[0], where[1]] = last


def followed(history: History, *ops: str) -> Iterator[tuple[Event, Copies, Filling | None]]:
    """Every event of ``COPIES`` and ``ops``, with what lay where after it and what it filled."""
    copies = Copies()
    for event in history.of(*COPIES, *ops):
        yield event, copies, copies.take(event)


def _end_ns(filling: Filling) -> int:
    assert filling.ended is not None, "its end was looked at before"
    return int(filling.ended["t_ns"])


def _filled(event: Event) -> bool:
    """Did it make a chunk readable here?"""
    if event.get("cause"):
        return False
    # A chunk of another layout is noted as it was sent, and has no place; what became of it
    # is noted as ``convert``.
    return not (event["op"] == "fetch" and event.get("place") == -1)
