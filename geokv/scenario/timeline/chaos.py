"""``- random: {…}`` in a timeline: a schedule of faults, drawn from the seed when the scenario is
loaded. What a run keeps are the faults themselves, so a run repeats whatever this file becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import Field, model_validator

from geokv.config import Strict, validate
from geokv.errors import ConfigError
from geokv.lab.topology import Topology, ends
from geokv.scenario.prompts import stream
from geokv.scenario.timeline.event import Wait
from geokv.units import Seconds

Kind = Literal[
    "link-cut", "link-one-way-cut", "link-flap", "link-degrade", "partition", "silent-drop",
    "path-switch", "background", "site-kill", "site-freeze", "site-restart", "slow-gpu",
    "memory-pressure", "bit-rot", "disk-full", "disk-slow", "store-outage", "corrupt-chunk",
    "lost-completion", "directory-kill", "directory-restart", "event-loss", "event-duplicate",
    "event-reorder", "purge", "eviction-storm",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
"""All but those that ask for others to ask (incast, tenant-load) and those for ever
(key-revoke)."""

_GAP_S = 0.5
"""Between two faults of one thing, so that each can be seen to begin and to be over."""
_TRIES = 400


class Random(Strict):
    """``count`` faults of these kinds, none of which meets another one of the same link or site
    within half a second."""

    faults: Annotated[list[Kind], Field(min_length=1)]
    """Each is as likely; one that is listed twice is twice as likely."""
    count: Annotated[int, Field(ge=1, le=200)]
    at: Annotated[Seconds, Field(ge=0, le=86_400)] = 0.5
    """Before it nothing happens, so that there is fair weather to compare with."""
    over: Wait
    """All begin within so long after ``at``."""
    shortest: Wait = 0.05
    longest: Wait = 0.5
    """How long each lasts is drawn between both."""

    @model_validator(mode="after")
    def _some_room(self) -> Random:
        if self.shortest > self.longest:
            raise ValueError(f"shortest: must be ≤ longest, got {self.shortest:g} s")
        return self


@dataclass(frozen=True)
class _Place:
    """What faults can happen to."""

    links: Mapping[str, float]
    """With their length, km."""
    sites: Sequence[str]
    providers: Sequence[str]
    disk: bool
    tenants: int
    directory: str
    """The site that keeps the table; the first where there is none."""


class _Dice:
    """Plain values from one random stream."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def one_of(self, values: Sequence[str]) -> str:
        return values[int(self._generator.integers(len(values)))]

    def between(self, low: float, high: float) -> float:
        """Seconds or factors, to a thousandth."""
        return round(float(self._generator.uniform(low, high)), 3)

    def whole(self, low: int, high: int) -> int:
        return int(self._generator.integers(low, high + 1))

    def share(self, low: float, high: float) -> float:
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


def with_random(data: dict[str, Any], topology: Topology | None) -> dict[str, Any]:
    """The mapping of a scenario with faults in place of every ``random``.

    Raises:
        ConfigError: a ``random`` is wrong, or has no room for its faults.
    """
    timeline, workload = data.get("timeline"), data.get("workload")
    if not isinstance(timeline, list) or not isinstance(workload, dict) or topology is None:
        return data
    if not any(_is_random(event) for event in timeline):
        return data
    seed = data.get("seed", 1)
    if not isinstance(seed, int):
        # Said to be wrong where everything else is.
        return {**data, "timeline": []}
    found: list[Any] = []
    for number, event in enumerate(timeline):
        if _is_random(event):
            place = f"timeline.{number}.random"
            wanted = validate(Random, event["random"], place)
            dice = _Dice(stream(seed, "chaos", number))
            found += _draw(wanted, _place(data, workload, topology), dice, place, len(found))
        else:
            found.append(event)
    return {**data, "timeline": found}


def _is_random(event: Any) -> bool:
    return isinstance(event, dict) and set(event) == {"random"}


def _place(data: dict[str, Any], workload: dict[str, Any], topology: Topology) -> _Place:
    deployment = data.get("deployment") or {}
    directory = ((data.get("cache") or {}).get("directory") or {}).get("site")
    return _Place(
        links={name: link.km for name, link in topology.links.items()},
        sites=list(topology.sites),
        providers=list(workload.get("providers") or topology.sites),
        disk=bool(deployment.get("disk_bytes")),
        tenants=int(workload.get("tenants", 1)),
        directory=directory or next(iter(topology.sites)),
    )


def _draw(
    wanted: Random, place: _Place, dice: _Dice, where: str, before: int
) -> list[dict[str, Any]]:
    """The events, in the order of their beginnings."""
    taken: list[tuple[float, float, frozenset[str]]] = []
    events: list[dict[str, Any]] = []
    for _ in range(_TRIES * wanted.count):
        if len(events) == wanted.count:
            break
        kind = dice.one_of(wanted.faults)
        lasts_s = dice.between(wanted.shortest, wanted.longest)
        at_s = dice.between(wanted.at, wanted.at + wanted.over)
        event, things = _WAYS[kind](dice, place, lasts_s)
        end_s = at_s + lasts_s
        free = all(
            end_s + _GAP_S <= a or b + _GAP_S <= at_s for a, b, others in taken if things & others
        )
        if free:
            taken.append((at_s, end_s, things))
            events.append({"fault": kind, "at": at_s, **event})
    if len(events) < wanted.count:
        raise ConfigError(
            f"{where}.count: {wanted.count} faults of {wanted.longest:g} s do not fit into "
            f"{wanted.over:g} s without meeting at one link or site",
            "ask for fewer, shorter ones, or over a longer time",
        )
    events.sort(key=lambda event: (event["at"], event["fault"]))
    for number, event in enumerate(events, start=before + 1):
        event["name"] = f"{event['fault']}-{number}"
    return events


def _link(change: Callable[[_Dice, float], dict[str, Any]]) -> Callable[..., Drawn]:
    def way(dice: _Dice, place: _Place, lasts_s: float) -> Drawn:
        link = dice.one_of(list(place.links))
        return {"link": link, **change(dice, lasts_s)}, frozenset({link})

    return way


def _site(
    change: Callable[[_Dice, _Place, float], dict[str, Any]], provider: bool = False
) -> Callable[..., Drawn]:
    """Of any site, or only of one that surely holds something."""

    def way(dice: _Dice, place: _Place, lasts_s: float) -> Drawn:
        site = dice.one_of(place.providers if provider else place.sites)
        return {"site": site, **change(dice, place, lasts_s)}, frozenset({site})

    return way


def _table(change: Callable[[_Dice, float], dict[str, Any]]) -> Callable[..., Drawn]:
    """What the directory is told happens at every site."""

    def way(dice: _Dice, place: _Place, lasts_s: float) -> Drawn:
        return change(dice, lasts_s), frozenset({"directory", *place.sites})

    return way


def _one_way(dice: _Dice, place: _Place, lasts_s: float) -> Drawn:
    link = dice.one_of(list(place.links))
    return {"link": link, "from": dice.one_of(ends(link)), "for": lasts_s}, frozenset({link})


def _partition(dice: _Dice, place: _Place, lasts_s: float) -> Drawn:
    return {"groups": dice.halves(place.sites), "for": lasts_s}, frozenset(place.links)


def _path_switch(dice: _Dice, place: _Place, lasts_s: float) -> Drawn:
    link, km = dice.one_of(list(place.links)), dice.whole(1, 200)
    # To a way as long as the old one nobody can see it switch.
    other = km + 1 if km == place.links[link] else km
    return {"link": link, "km": other, "outage": 0.05, "for": lasts_s}, frozenset({link})


def _corrupt(dice: _Dice, place: _Place, lasts_s: float) -> Drawn:
    # Chunks go out from who computes them; over a link between two others hardly any ever does,
    # and a fault that meets none cannot be seen.
    carrying = [link for link in place.links if set(ends(link)) & set(place.providers)]
    link = dice.one_of(carrying or list(place.links))
    event = {"link": link, "one_in": dice.whole(1, 4), "for": lasts_s}
    return event, frozenset({link, *ends(link)})


def _purge(dice: _Dice, place: _Place, lasts_s: float) -> Drawn:
    tenant = f"tenant-{dice.whole(0, place.tenants - 1)}"
    # Asked elsewhere it is refused, and said to be, while the directory's site is away.
    return {"tenant": tenant, "site": place.directory}, frozenset({"purge", place.directory})


def _directory_restart(dice: _Dice, lasts_s: float) -> dict[str, Any]:
    return {"how": dice.one_of(["empty", "stale"])}


def _rot(dice: _Dice, place: _Place, lasts_s: float) -> dict[str, Any]:
    tier = dice.one_of(["dram", "disk"]) if place.disk else "dram"
    return {"tier": tier, "chunks": dice.whole(1, 3)}


def _restart(dice: _Dice, place: _Place, lasts_s: float) -> dict[str, Any]:
    return {"how": dice.one_of(["empty", "stale"]) if place.disk else "empty"}


def _flap(dice: _Dice, lasts_s: float) -> dict[str, Any]:
    times = dice.whole(2, 4)
    each = max(0.002, round(lasts_s / times / 2, 3))
    return {"times": times, "down": each, "up": each}


def _kill(dice: _Dice, place: _Place, lasts_s: float) -> dict[str, Any]:
    keep = dice.one_of(["nothing", "disk"]) if place.disk else "nothing"
    return {"restart": lasts_s, "keep": keep}


def _degrade(dice: _Dice, lasts_s: float) -> dict[str, Any]:
    return {"loss": dice.share(0.01, 0.2), "delay": dice.between(0.001, 0.02), "for": lasts_s}


_WAYS: dict[str, Callable[[_Dice, _Place, float], Drawn]] = {
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
