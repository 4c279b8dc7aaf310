"""What a drawn fault of each kind does, and to what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geokv.lab.topology import ends


@dataclass(frozen=True)
class Place:
    """What faults can happen to."""

    links: Mapping[str, float]
    """With their length, km."""
    sites: Sequence[str]
    providers: Sequence[str]
    disk: bool
    tenants: int
    directory: str
    """The site that keeps the table; the first where there is none."""


class Dice:
    """Plain values from one random stream."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def one_of(self, values: Sequence[str]) -> str:
        """Each equally likely."""
        return values[int(self._generator.integers(len(values)))]

    def between(self, low: float, high: float) -> float:
        """Seconds or factors, to a thousandth."""
        return round(float(self._generator.uniform(low, high)), 3)

    def whole(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return int(self._generator.integers(low, high + 1))

    def share(self, low: float, high: float) -> float:
        """A share or factor, to a hundredth."""
        return round(float(self._generator.uniform(low, high)), 2)

    def halves(self, values: Sequence[str]) -> list[list[str]]:
        """Two groups, neither empty, each in the order given."""
        first = self.whole(0, len(values) - 1)
        sides = [place == first or bool(self.whole(0, 1)) for place in range(len(values))]
        if all(sides):
            sides[(first + 1) % len(values)] = False
        return [
            [value for value, side in zip(values, sides, strict=True) if side is wanted]
            for wanted in (True, False)
        ]


Drawn = tuple[dict[str, Any], frozenset[str]]
"""The keys of an event but its time, and the things it happens to."""


def _link(change: Callable[[Dice, float], dict[str, Any]]) -> Callable[..., Drawn]:
    def way(dice: Dice, place: Place, lasts_s: float) -> Drawn:
        link = dice.one_of(list(place.links))
        return {"link": link, **change(dice, lasts_s)}, frozenset({link})

    return way


def _site(
    change: Callable[[Dice, Place, float], dict[str, Any]], provider: bool = False
) -> Callable[..., Drawn]:
    """Of any site, or only of one that surely holds something."""

    def way(dice: Dice, place: Place, lasts_s: float) -> Drawn:
        site = dice.one_of(place.providers if provider else place.sites)
        return {"site": site, **change(dice, place, lasts_s)}, frozenset({site})

    return way


def _table(change: Callable[[Dice, float], dict[str, Any]]) -> Callable[..., Drawn]:
    """What the directory is told happens at every site."""

    def way(dice: Dice, place: Place, lasts_s: float) -> Drawn:
        return change(dice, lasts_s), frozenset({"directory", *place.sites})

    return way


def _one_way(dice: Dice, place: Place, lasts_s: float) -> Drawn:
    link = dice.one_of(list(place.links))
    return {"link": link, "from": dice.one_of(ends(link)), "for": lasts_s}, frozenset({link})


def _partition(dice: Dice, place: Place, lasts_s: float) -> Drawn:
    return {"groups": dice.halves(place.sites), "for": lasts_s}, frozenset(place.links)


def _path_switch(dice: Dice, place: Place, lasts_s: float) -> Drawn:
    link, km = dice.one_of(list(place.links)), dice.whole(1, 200)
    # To a way as long as the old one nobody can see it switch.
    other = km + 1 if km == place.links[link] else km
    return {"link": link, "km": other, "outage": 0.05, "for": lasts_s}, frozenset({link})


def _corrupt(dice: Dice, place: Place, lasts_s: float) -> Drawn:
    # Chunks go out from who computes them; over a link between two others hardly any ever does,
    # and a fault that meets none cannot be seen.
    carrying = [link for link in place.links if set(ends(link)) & set(place.providers)]
    link = dice.one_of(carrying or list(place.links))
    event = {"link": link, "one_in": dice.whole(1, 4), "for": lasts_s}
    return event, frozenset({link, *ends(link)})


def _purge(dice: Dice, place: Place, lasts_s: float) -> Drawn:
    tenant = f"tenant-{dice.whole(0, place.tenants - 1)}"
    # Asked elsewhere it is refused, and said to be, while the directory's site is away.
    return {"tenant": tenant, "site": place.directory}, frozenset({"purge", place.directory})


def _directory_restart(dice: Dice, lasts_s: float) -> dict[str, Any]:
    return {"how": dice.one_of(["empty", "stale"])}


def _rot(dice: Dice, place: Place, lasts_s: float) -> dict[str, Any]:
    tier = dice.one_of(["dram", "disk"]) if place.disk else "dram"
    return {"tier": tier, "chunks": dice.whole(1, 3)}


def _restart(dice: Dice, place: Place, lasts_s: float) -> dict[str, Any]:
    return {"how": dice.one_of(["empty", "stale"]) if place.disk else "empty"}


def _flap(dice: Dice, lasts_s: float) -> dict[str, Any]:
    times = dice.whole(2, 4)
    each = max(0.002, round(lasts_s / times / 2, 3))
    return {"times": times, "down": each, "up": each}


def _kill(dice: Dice, place: Place, lasts_s: float) -> dict[str, Any]:
    keep = dice.one_of(["nothing", "disk"]) if place.disk else "nothing"
    return {"restart": lasts_s, "keep": keep}


def _degrade(dice: Dice, lasts_s: float) -> dict[str, Any]:
    return {"loss": dice.share(0.01, 0.2), "delay": dice.between(0.001, 0.02), "for": lasts_s}


WAYS: dict[str, Callable[[Dice, Place, float], Drawn]] = {
    "link-cut": _link(lambda _, s: {"for": s}),
    "link-one-way-cut": _one_way,
    "link-flap": _link(_flap),
    "link-degrade": _link(_degrade),
    "partition": _partition,
    "silent-drop": _link(lambda _, s: {"for": s}),
    "path-switch": _path_switch,
    "background": _link(lambda d, s: {"share": d.share(0.3, 0.9), "for": s}),
    "site-kill": _site(_kill),
    "site-freeze": _site(lambda _, __, s: {"for": s}),
    "site-restart": _site(_restart),
    "slow-gpu": _site(lambda d, _, s: {"factor": d.between(1.5, 8), "for": s}),
    "memory-pressure": _site(lambda d, _, s: {"dram_keep": d.share(0.2, 0.8), "for": s}, True),
    "bit-rot": _site(_rot, True),
    "disk-full": _site(lambda _, __, s: {"for": s}),
    "disk-slow": _site(lambda d, _, s: {"factor": d.between(2, 20), "for": s}),
    "store-outage": _site(lambda _, __, s: {"for": s}),
    "corrupt-chunk": _corrupt,
    "lost-completion": _site(lambda d, _, s: {"one_in": d.whole(1, 4), "for": s}, True),
    "directory-kill": _table(lambda _, s: {"for": s}),
    "directory-restart": _table(_directory_restart),
    "event-loss": _table(lambda d, s: {"share": d.share(0.1, 0.5), "for": s}),
    "event-duplicate": _table(lambda d, s: {"share": d.share(0.1, 0.5), "for": s}),
    "event-reorder": _table(lambda d, s: {"window": d.between(0.005, 0.05), "for": s}),
    "purge": _purge,
    # A tier that was empty before has nothing that must go in the first round.
    "eviction-storm": _site(lambda d, _, __: {"rounds": d.whole(2, 3)}, True),
}
