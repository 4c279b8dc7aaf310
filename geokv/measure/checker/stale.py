"""``stale``: did anything come from a life, a generation or a lease that had ended?

* A chunk was accepted from a life of a site although a newer one had been serving for more than
  what a dead process can leave in its kernel's buffers.
* A chunk was used under a generation and incarnation that its key never had at that site.
* A site that had fenced itself used or served something before it was unfenced.
"""

from __future__ import annotations

from collections import defaultdict

from geokv.measure.checker.copies import Copies, followed
from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import Event, History, handed_over

NAME, INV = "stale", "INV-1"
IN_FLIGHT_NS = 1_000_000_000
"""What a killed process had given to its kernel still arrives, whole and true."""


def check(history: History) -> Finding:
    offences: list[Offence] = []
    serving: dict[str, Event] = {}
    fenced: dict[str, Event] = {}
    lives: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    examined = 0
    for event, copies, filling in followed(history, "use", "serve", "fenced", "unfenced"):
        op, site = event["op"], event["site"]
        if op == "life":
            if event.get("phase") == "serving":
                serving[site] = event
                fenced.pop(site, None)
        elif op == "fenced":
            fenced.setdefault(site, event)
        elif op == "unfenced":
            fenced.pop(site, None)
        if event.get("cause"):
            continue
        if filling is not None and "generation" in event:
            lives[site, filling.key].add((event["generation"], event.get("incarnation", -1)))
        if op == "fetch" and "incarnation" in event:
            examined += 1
            offences += _dead(event, serving.get(event["source"]))
        if op in ("use", "serve"):
            examined += 1
            if site in fenced:
                did = "used" if op == "use" else "served"
                said = f"{site} {did} chunk {event['key'][:12]}… while it was fenced"
                offences.append((said, [fenced[site], event]))
            elif op == "use" and "generation" in event and handed_over(event):
                offences += _never(event, copies, lives[site, event["key"]])
    unknown = "" if examined else "no fetch or use with an incarnation is in the history"
    said = f"all {examined} fetches, uses and answers to peers are of living copies"
    return conclude(NAME, INV, offences, unknown, said)


def _dead(fetch: Event, life: Event | None) -> list[Offence]:
    if life is None or "incarnation" not in life or fetch["incarnation"] >= life["incarnation"]:
        return []
    if fetch["t_ns"] <= life["t_ns"] + IN_FLIGHT_NS:
        return []
    said = (
        f"{fetch['site']} took chunk {fetch['key'][:12]}… of life {fetch['incarnation']} of "
        f"{fetch['source']}, which had been in life {life['incarnation']} for "
        f"{(fetch['t_ns'] - life['t_ns']) / 1e6:.1f} ms"
    )
    return [(said, [life, fetch])]


def _never(use: Event, copies: Copies, known: set[tuple[int, int]]) -> list[Offence]:
    """Promoted chunks are stamped anew, with the life of their site: only their generation is
    in the history."""
    generation = use["generation"]
    if (generation, use.get("incarnation", -1)) in known or (generation, -1) in known:
        return []
    last = copies.last(use["site"], use["key"])
    if last is None or "generation" not in last.event:
        return []
    said = (
        f"chunk {use['key'][:12]}… was used at {use['site']} as generation {generation} of life "
        f"{use.get('incarnation')}, which it never had there"
    )
    return [(said, [last.event, use])]
