"""What no single field of a drill can know: names in its timeline, its control, its promises."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

from geokv.scenario.directory import CentralDirectory
from geokv.scenario.expect import Expect
from geokv.scenario.paths import suggest
from geokv.scenario.timeline import Background, Event, Partition
from geokv.scenario.workload import OpenLoop, Stream

if TYPE_CHECKING:
    from geokv.scenario.model import Scenario

_SITE_KEYS = ("site", "to")
_NEEDS_TABLE = ("directory-kill", "directory-restart", "event-loss", "event-duplicate")
_NEEDS_DISK = ("disk-full", "disk-slow", "store-outage")


def drill_problems(scenario: Scenario) -> list[str]:
    """Every contradiction of a drill, as ``path: what is wrong``; those of a scenario that uses
    parts of a drill and is none, too."""
    if not isinstance(scenario.workload, OpenLoop):
        return _not_a_drill(scenario)
    found = [*_stream(scenario, scenario.workload), *_promises(scenario, scenario.workload)]
    for number, event in enumerate(scenario.timeline):
        found += event_problems(scenario, scenario.workload, event, f"timeline.{number}")
    return found + _names(scenario.timeline) + _conditions(scenario.timeline) + _control(scenario)


def _not_a_drill(scenario: Scenario) -> list[str]:
    named = {
        "timeline": scenario.timeline,
        "control": scenario.control,
        "expect.drill": scenario.expect.drill,
        "routing.policy": scenario.routing.policy != "asker",
    }
    return [
        f"{path}: needs workload.kind stream or trace" for path, value in named.items() if value
    ]


def _stream(scenario: Scenario, workload: OpenLoop) -> list[str]:
    sites = list(scenario.topology.sites)
    found = []
    naming = {"askers": list(workload.askers)}
    if isinstance(workload, Stream):
        naming["providers"] = workload.providers
    else:
        naming["file"] = [site for site in workload.asked if site not in workload.askers]
    for key, named in naming.items():
        for site in named:
            if site not in sites:
                found.append(_unknown(f"workload.{key}", "site", site, sites))
    found += [
        _unknown("routing.sites", "site", site, sites)
        for site in scenario.routing.sites
        if site not in sites
    ]
    return found


def _promises(scenario: Scenario, workload: OpenLoop) -> list[str]:
    """A drill has no arms: what is promised of them cannot be judged."""
    given = [
        name
        for name, field in Expect.model_fields.items()
        if name not in ("drill", "links_within_tolerance", "changes")
        and getattr(scenario.expect, name) != field.get_default(call_default_factory=True)
    ]
    found = [f"expect.{name}: is about arms, which a drill has none of" for name in given]
    found += _changes(scenario)
    promised = scenario.expect.drill.ttft_rise_percent_at_most if scenario.expect.drill else {}
    asked = workload.fetching
    found += [
        f"expect.drill.ttft_rise_percent_at_most.{site}: nobody asks there"
        f"{suggest(site, asked)} (asked are: {', '.join(asked)})"
        for site in promised
        if site not in asked
    ]
    return found + _figures(scenario)


def _changes(scenario: Scenario) -> list[str]:
    """Fetching beside computing is all that a drill can hold its cells against each other by."""
    changes = scenario.expect.changes
    probe = scenario.workload.probe if isinstance(scenario.workload, Stream) else None
    if changes and probe != "recompute":
        return [
            "expect.changes: of a drill are of what was fetched, needs workload.probe recompute"
        ]
    return [
        f"expect.changes.{number}.of: a drill has no time of the fetch alone"
        for number, change in enumerate(changes)
        if change.of == "fetch"
    ]


def _figures(scenario: Scenario) -> list[str]:
    """Fetching beside computing is all that a drill has to draw."""
    probe = scenario.workload.probe if isinstance(scenario.workload, Stream) else None
    if scenario.figures and probe != "recompute":
        return ["figures: compare fetching with computing, which needs workload.probe recompute"]
    found = []
    for number, figure in enumerate(scenario.figures):
        if figure.kind != "lines":
            found.append(f"figures.{number}.kind: of a drill must be lines, got {figure.kind}")
        elif figure.of == "fetch":
            found.append(f"figures.{number}.of: a drill has no time of the fetch alone")
    return found


def event_problems(scenario: Scenario, workload: OpenLoop, event: Event, place: str) -> list[str]:
    """What an event names that the drill does not have, as ``place.key: what is wrong``."""
    topology = scenario.topology
    sites, links = list(topology.sites), list(topology.links)
    found = []
    link = getattr(event, "link", None)
    if link is not None and link not in links:
        found.append(_unknown(f"{place}.link", "link", link, links))
    for key, site in _sites_of(event):
        if site not in sites:
            found.append(_unknown(f"{place}.{key}", "site", site, sites))
        elif key == "from" and link in links and site not in str(link).split("-"):
            found.append(f"{place}.from: {site} is no end of {link}")
    tenant = getattr(event, "tenant", None)
    tenants = [f"tenant-{number}" for number in range(max(2, workload.tenants))]
    if tenant is not None and tenant not in tenants:
        found.append(_unknown(f"{place}.tenant", "tenant", tenant, tenants))
    if event.fault.startswith(_NEEDS_TABLE) and not isinstance(
        scenario.cache.directory, CentralDirectory
    ):
        found.append(f"{place}.fault: needs cache.directory.kind central")
    if event.fault == "tenant-load" and not isinstance(workload, Stream):
        found.append(f"{place}.fault: fetches a stream's prefixes, needs workload.kind stream")
    if event.fault in _NEEDS_DISK or getattr(event, "tier", None) == "disk":
        site = getattr(event, "site", "")
        if site in sites and not scenario.deployment.at(site).disk_bytes:
            found.append(f"{place}.site: {site} has no disk (deployment.disk_bytes)")
    if event.expect.disk_back_within is not None and event.fault not in _NEEDS_DISK:
        of = ", ".join(_NEEDS_DISK)
        found.append(f"{place}.expect.disk_back_within: is of faults of a disk ({of})")
    if isinstance(event, Partition):
        twice = [site for site, n in Counter(chain(*event.groups)).items() if n > 1]
        found += [f"{place}.groups: {site} is in two groups" for site in twice]
    way = event.direction if isinstance(event, Background) else None
    if way is not None and link in links and set(way.split("-to-")) != set(link.split("-")):
        found.append(f"{place}.direction: {way} is no direction of {link}")
    return found


def _sites_of(event: Any) -> list[tuple[str, str]]:
    """Key → each site an event names."""
    named = [(key, getattr(event, key)) for key in _SITE_KEYS if getattr(event, key, None)]
    sender = getattr(event, "from_", None)
    senders = [sender] if isinstance(sender, str) else sender or []
    named += [("from", site) for site in senders]
    return named + [("groups", site) for group in getattr(event, "groups", []) for site in group]


def _names(timeline: list[Any]) -> list[str]:
    seen = Counter(event.title for event in timeline)
    return [
        f"timeline: {times} events are called {name}; give them names"
        for name, times in seen.items()
        if times > 1
    ]


def _conditions(timeline: list[Any]) -> list[str]:
    """Each waits for what is written before it, so none waits for itself."""
    found = []
    earlier: dict[str, Event] = {}
    for number, event in enumerate(timeline):
        waits = event.condition
        if waits is not None and waits.fault is not None:
            place = f"timeline.{number}.when"
            if waits.fault not in earlier:
                found.append(
                    f"{place}: no event before it is called {waits.fault}"
                    f"{suggest(waits.fault, list(earlier))}"
                )
            elif waits.state == "healed" and not earlier[waits.fault].heals:
                found.append(f"{place}: {waits.fault} never heals")
        earlier[event.title] = event
    return found


def _control(scenario: Scenario) -> list[str]:
    if scenario.control is None:
        return []
    names = [event.title for event in scenario.timeline]
    found = [
        f"control.without: no event is called {name}{suggest(name, names)}"
        for name in scenario.control.without
        if name not in names
    ]
    for path in scenario.control.set:
        if path.split(".")[0] in ("control", "sweep", "name", "seed", "vm", "clock"):
            found.append(f"control.set: {path} is the same in all cells of a run")
    return found


def _unknown(place: str, what: str, name: str, known: list[str]) -> str:
    said = f"{place}: unknown {what} {name!r} (known: {', '.join(known)})"
    return said + suggest(name, known)
