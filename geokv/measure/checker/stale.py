"""``stale``: did anything come from a life, a copy, a generation or a lease that had ended?

* A chunk was accepted of a life of a site that had been asked for after that life was over: killed,
  or a newer one had begun to serve. What was asked for before may come at any time: a dead process
  leaves it in its kernel's buffers, whole and true.
* A copy was used, or fetched, that had been evicted or dropped before anybody looked for it. What
  was found before it went may be read to its end: whoever reads holds a pin.
* A chunk was used under a generation and incarnation that its key never had at that site.
* A site that had fenced itself used or served something before it was unfenced.
"""

from __future__ import annotations

from collections import defaultdict

from geokv.measure.checker.copies import Copies, Filling, followed
from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import Event, History, handed_over

NAME, INV = "stale", "INV-1"
_GONE = {"evict": "evicted", "drop": "dropped"}


def check(history: History) -> Finding:
    """Follow lives, copies, generations and leases to their ends."""
    offences: list[Offence] = []
    lives = _Lives()
    planned: dict[tuple[str, str], Event] = {}
    fenced: dict[str, Event] = {}
    known: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    examined = undated = 0
    for event, copies, filling in followed(history, "lookup", "use", "serve", "fenced", "unfenced"):
        op, site = event["op"], event["site"]
        if op == "life":
            lives.take(event)
            if event.get("phase") == "serving":
                fenced.pop(site, None)
        elif op == "lookup":
            # What an earlier plan of the same request found may still be pinned for it.
            planned.setdefault((site, event["request_id"]), event)
        elif op == "fenced":
            fenced.setdefault(site, event)
        elif op == "unfenced":
            fenced.pop(site, None)
        if event.get("cause"):
            continue
        if filling is not None and "generation" in event:
            known[site, filling.key].add((event["generation"], event.get("incarnation", -1)))
        if op == "fetch" and "incarnation" in event:
            examined += 1
            over = lives.over(event["source"], event["incarnation"])
            if "asked_ns" in event:
                offences += _dead(event, over) or _taken_from_nothing(event, copies)
            elif over:
                undated += 1
        if op in ("use", "serve"):
            examined += 1
            if site in fenced:
                did = "used" if op == "use" else "served"
                said = f"{site} {did} chunk {event['key'][:12]}… while it was fenced"
                offences.append((said, [fenced[site], event]))
            elif op == "use" and handed_over(event):
                plan = planned.get((site, event.get("request_id", "")))
                offences += _never(event, copies, known[site, event["key"]]) or _used_from_nothing(
                    event, plan, copies
                )
    unknown = "" if examined else "no fetch or use with an incarnation is in the history"
    if undated:
        unknown = f"{undated} chunks came of lives that were over; when they were asked for is lost"
    said = f"all {examined} fetches, uses and answers to peers are of living copies"
    return conclude(NAME, INV, offences, unknown, said)


class _Lives:
    """When each life of a site was over, as far as the history has come."""

    def __init__(self) -> None:
        self._ends: dict[str, list[tuple[int, Event]]] = defaultdict(list)
        """Per site, in order: the newest incarnation that this event ends."""

    def take(self, event: Event) -> None:
        phase, incarnation = event.get("phase"), event.get("incarnation")
        if incarnation is None:
            return
        if phase == "serving":
            self._ends[event["site"]].append((incarnation - 1, event))
        elif phase in ("killed", "ended"):
            self._ends[event["site"]].append((incarnation, event))

    def over(self, site: str, incarnation: int) -> list[Event]:
        """The first event that shows this life to be over; empty while it may go on."""
        ends = self._ends.get(site, ())
        return next(([event] for newest, event in ends if incarnation <= newest), [])


def _dead(fetch: Event, over: list[Event]) -> list[Offence]:
    if not over or fetch["asked_ns"] <= over[0]["t_ns"]:
        return []
    end = over[0]
    how = f"life {end['incarnation']} had begun to serve"
    if end["phase"] != "serving":
        how = f"that life had {'been killed' if end['phase'] == 'killed' else 'ended'}"
    said = (
        f"{fetch['site']} took chunk {fetch['key'][:12]}… of life {fetch['incarnation']} of "
        f"{fetch['source']}, and had asked for it {(fetch['asked_ns'] - end['t_ns']) / 1e6:.3f} ms "
        f"after {how}"
    )
    return [(said, [end, fetch])]


def _taken_from_nothing(fetch: Event, copies: Copies) -> list[Offence]:
    """Was it asked for when its source had no copy any more?"""
    last = copies.gone(fetch["source"], fetch["key"])
    if last is None or last.ended is None or fetch["asked_ns"] <= last.ended["t_ns"]:
        return []
    said = f"{fetch['site']} took chunk {fetch['key'][:12]}… from {fetch['source']}, and had asked "
    return [(said + _since(last, fetch["asked_ns"]), [last.event, last.ended, fetch])]


def _used_from_nothing(use: Event, plan: Event | None, copies: Copies) -> list[Offence]:
    """Was it looked for when this site had no copy any more?"""
    last = copies.gone(use["site"], use["key"])
    if plan is None or last is None or last.ended is None:
        return []
    began_ns = plan["t_ns"] - plan["lookup_ns"]
    if began_ns <= last.ended["t_ns"]:
        return []
    said = f"chunk {use['key'][:12]}… was used at {use['site']} by a request that looked for it "
    # It may be called by the generation of a copy before the last; then that one is shown.
    stamp = use.get("generation", last.event.get("generation"))
    fillings = copies.all(use["site"], use["key"]) if last.tier == "dram" else []
    called = [one.event for one in fillings if one.event.get("generation") == stamp]
    copy = called[-1] if called else last.event
    return [(said + _since(last, began_ns), [copy, last.ended, plan, use])]


def _since(last: Filling, t_ns: int) -> str:
    assert last.ended is not None, "gone"
    after_ms = (t_ns - last.ended["t_ns"]) / 1e6
    return f"{after_ms:.3f} ms after it had been {_GONE[last.ended['op']]} there"


def _never(use: Event, copies: Copies, known: set[tuple[int, int]]) -> list[Offence]:
    """Promoted chunks are stamped anew, with the life of their site: only their generation is
    in the history."""
    generation = use.get("generation")
    if generation is None:
        return []
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
