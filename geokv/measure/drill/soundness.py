"""Is the drill itself worth judging by: links, faults, sharing, and books that close?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from geokv.measure.checker.exchanges import TIERS, Exchange, exchanges
from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import Event, History
from geokv.measure.drill.faults import FaultSeen, faults_seen


def examine(history: History, names: Sequence[str] | None = None) -> list[Finding]:
    """``links``, ``fault-fired:*``, ``sharing-had-effect`` and ``accounted``.

    Args:
        names: of the timeline's faults; None takes those that the history names.
    """
    seen = {fault.name: fault for fault in faults_seen(history)}
    expected = list(seen) if names is None else names
    return [
        links(history),
        *(_fired(name, seen.get(name)) for name in expected),
        sharing(history),
        accounted(history),
    ]


def links(history: History) -> Finding:
    """INV-7: every link kept to its plan, before the stream and after all faults had healed."""
    offences: list[Offence] = []
    phases: Counter[str] = Counter()
    for event in history.of("links"):
        phases[event["phase"]] += 1
        if not event["ok"]:
            why = "; ".join(event.get("problems") or ["off its plan"])
            offences.append((f"{event['link']} {event['phase']}: {why}", [event]))
    missing = [phase for phase in ("before", "after") if not phases[phase]]
    unknown = f"links were not checked {' and '.join(missing)}" if missing else ""
    return conclude("links", "INV-7", offences, unknown, "every link kept to its plan")


def _fired(name: str, fault: FaultSeen | None) -> Finding:
    """A fault that did not happen makes the drill worth nothing, and nothing broken."""
    line = f"fault-fired:{name}"
    if fault is None:
        return Finding(line, "", None, "it was never asked for: the drill ended before")
    if fault.problem:
        return Finding(line, "", None, fault.problem)
    return Finding(line, "", True, "; ".join(fault.evidence.values()))


def sharing(history: History) -> Finding:
    """A drill in which nothing was shared says nothing about sharing."""
    asked = exchanges(history)
    fetched = [one for one in asked if one.ok and one.chunks_remote]
    if not fetched:
        said = f"sharing had no effect: none of {len(asked)} requests fetched anything"
        return Finding("sharing-had-effect", "", None, said)
    chunks = sum(one.chunks_remote for one in fetched)
    said = f"{len(fetched)} of {len(asked)} requests fetched {chunks} chunks from other sites"
    return Finding("sharing-had-effect", "", True, said)


def accounted(history: History) -> Finding:
    """Every answer belongs to one request, every request has one; what sites noted for a request
    is what its answer says it was given; and what was fetched somewhere was served somewhere."""
    asked = exchanges(history)
    offences: list[Offence] = []
    known: dict[str, Event] = {}
    for one in asked:
        if one.request_id in known:
            said = f"two requests are called {one.request_id}"
            offences.append((said, [known[one.request_id], one.request]))
        known[one.request_id] = one.request
        if len(one.answers) > 1:
            said = f"request {one.request_id} was answered {len(one.answers)} times"
            offences.append((said, [one.request, *one.answers[:2]]))
    for event in history.of("answer"):
        if event["request_id"] not in known:
            said = f"an answer to {event['request_id']}, which nobody asked"
            offences.append((said, [event]))
    offences += _given(history)
    offences += _served(history)
    unknown = "" if asked else "there is no request in the history"
    said = f"{len(asked)} requests and {history.count('fetch')} fetches, each with one fate"
    return conclude("accounted", "", offences, unknown, said)


def _given(history: History) -> list[Offence]:
    """Chunks from other sites: as noted when they were handed over, and as answered."""
    if not history.has("use"):
        return []
    offences: list[Offence] = []
    for one in exchanges(history):
        if one.ok and one.handed != one.chunks_remote:
            said = (
                f"request {one.request_id} says it had {one.chunks_remote} chunks from other "
                f"sites, and {one.handed} were handed over"
            )
            offences.append((said, [one.request, *_last_handed(history, one), one.answers[0]]))
    return offences


def _last_handed(history: History, one: Exchange) -> list[Event]:
    """The event that shows that there was one, where there was."""
    handed = [
        event
        for event in history.of("use")
        if event["request_id"] == one.request_id and event["source"] not in TIERS
    ]
    return handed[-1:]


def _served(history: History) -> list[Offence]:
    """A chunk that came whole was sent whole, unless that life of its sender was killed, maybe
    before it could say so."""
    killed = {
        (event["site"], event["incarnation"])
        for event in history.of("life")
        if event.get("phase") == "killed"
    }
    sent: Counter[tuple[str, str, str]] = Counter()
    for event in history.of("serve"):
        by = (event["site"], event.get("incarnation"))
        if not event.get("cause") and by not in killed:
            sent[event["site"], event.get("peer", ""), event["key"]] += 1
    offences: list[Offence] = []
    for event in history.of("fetch"):
        where = (event["source"], event["site"], event["key"])
        if event.get("cause") or (event["source"], event.get("incarnation")) in killed:
            continue
        sent[where] -= 1
        if sent[where] < 0:
            said = (
                f"chunk {event['key'][:12]}… came to {event['site']} from {event['source']}, "
                "which never sent it"
            )
            offences.append((said, [event]))
    return offences
