"""``- random: {…}`` in a timeline: a schedule of faults, drawn from the seed when the scenario is
loaded. What a run keeps are the faults themselves, so a run repeats whatever this file becomes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from geokv.config import Strict, validate
from geokv.errors import ConfigError
from geokv.lab.topology import Topology
from geokv.scenario.prompts import stream
from geokv.scenario.timeline.draws import WAYS, Dice, Place
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
_GAP_OF_EVENTS_S = 1.5
"""Between two of one kind that wait for an event to meet them, and last from then on."""
_TRIES = 400


class Random(Strict):
    """``count`` faults of these kinds, none of which meets another one of the same link or site
    within half a second, and no two of one kind what is told the directory within 1.5 s."""

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
            dice = Dice(stream(seed, "chaos", number))
            found += _draw(wanted, _place(data, workload, topology), dice, place, len(found))
        else:
            found.append(event)
    return {**data, "timeline": found}


def _is_random(event: Any) -> bool:
    return isinstance(event, dict) and set(event) == {"random"}


def _place(data: dict[str, Any], workload: dict[str, Any], topology: Topology) -> Place:
    sites = list(topology.sites)
    site = _mapping(_mapping(data, "cache"), "directory").get("site")
    tenants, providers = workload.get("tenants", 1), workload.get("providers")
    named = [one for one in providers if one in sites] if isinstance(providers, list) else []
    return Place(
        links={name: link.km for name, link in topology.links.items()},
        sites=sites,
        providers=named or sites,
        disk=bool(_mapping(data, "deployment").get("disk_bytes")),
        tenants=tenants if isinstance(tenants, int) and tenants > 0 else 1,
        directory=site if site in sites else sites[0],
    )


def _mapping(data: dict[str, Any], key: str) -> dict[str, Any]:
    """What should be one; what is there instead is said to be wrong where everything else is."""
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _draw(
    wanted: Random, place: Place, dice: Dice, where: str, before: int
) -> list[dict[str, Any]]:
    """The events, in the order of their beginnings."""
    taken: list[tuple[float, float, str, frozenset[str]]] = []
    events: list[dict[str, Any]] = []
    for _ in range(_TRIES * wanted.count):
        if len(events) == wanted.count:
            break
        kind = dice.one_of(wanted.faults)
        lasts_s = dice.between(wanted.shortest, wanted.longest)
        at_s = dice.between(wanted.at, wanted.at + wanted.over)
        event, things = WAYS[kind](dice, place, lasts_s)
        end_s = at_s + lasts_s
        free = all(
            end_s + _gap_s(kind, other) <= a or b + _gap_s(kind, other) <= at_s
            for a, b, other, others in taken
            if things & others
        )
        if free:
            taken.append((at_s, end_s, kind, things))
            events.append({"fault": kind, "at": at_s, **event})
    if len(events) < wanted.count:
        raise ConfigError(
            f"{where}.count: {wanted.count} faults of {wanted.longest:g} s do not fit into "
            f"{wanted.over:g} s without meeting at one link or site",
            "ask for fewer, shorter ones, or over a longer time",
        )
    events.sort(key=lambda event: (event["at"], event["fault"]))
    _forget_what_is_gone(events, place.directory)
    for number, event in enumerate(events, start=before + 1):
        event["name"] = f"{event['fault']}-{number}"
    return events


def _gap_s(one: str, other: str) -> float:
    return _GAP_OF_EVENTS_S if one == other and one.startswith("event-") else _GAP_S


def _forget_what_is_gone(events: list[dict[str, Any]], directory: str) -> None:
    """A table that has begun anew keeps nothing of before that it could go back to."""
    kept = True
    for event in events:
        if event["fault"] == "directory-restart" and not kept:
            event["how"] = "empty"
        kept = kept and not (
            event["fault"] in ("directory-kill", "directory-restart")
            or (event["fault"] in ("site-kill", "site-restart") and event["site"] == directory)
        )
