"""``served-after-purge``: did anybody use, serve, take or keep what had been purged?

From the moment a purge is acknowledged, nothing that was computed before it was asked for may be
used, sent, accepted, or still be readable when all is quiet. Copies are followed from site to site
and from tier to tier to the ``store`` they descend from, so what was computed anew since is told
apart from what was kept. From outside: a request that was sent after the acknowledgement may find
cached only what a request sent after the purge was asked for had brought.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from geokv.measure.checker.copies import Filling, followed
from geokv.measure.checker.exchanges import exchanges
from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import Event, History, handed_over, held_keys
from geokv.measure.checker.prefixes import STEP_TOKENS, Prefixes

NAME, INV = "served-after-purge", "INV-6"
_DID = {"use": "used", "serve": "served", "held": "held at the end"}


@dataclass
class _Purge:
    asked: Event
    acked: Event
    sent: dict[str, Prefixes] = field(default_factory=lambda: defaultdict(Prefixes))

    def concerns(self, tenant: object) -> bool:
        scope = self.asked.get("tenant") or self.asked.get("scope")
        return scope in (None, "", "all") or scope == tenant


def check(history: History) -> Finding:
    """Look for what was purged after its purge was acknowledged."""
    purges, open_ends = _purges(history)
    if not purges and not open_ends:
        return Finding(NAME, INV, True, "nothing was purged")
    offences, examined = _copies(history, purges)
    offences += _from_outside(history, purges)
    offences.sort(key=lambda offence: int(offence[1][-1]["t_ns"]))
    unknown = ""
    if open_ends:
        unknown = f"purge {open_ends[0]['purge_id']} was never acknowledged"
    elif not examined:
        unknown = "nothing was used, served or asked for after the purge"
    said = f"{len(purges)} purges: nothing of before in {examined} uses and answers after them"
    return conclude(NAME, INV, offences, unknown, said)


def _purges(history: History) -> tuple[list[_Purge], list[Event]]:
    """Acknowledged ones, and those that were only asked for. What sites heard is theirs."""
    asked: dict[object, Event] = {}
    done: list[_Purge] = []
    for event in history.of("purge"):
        if event.get("phase") == "asked":
            asked[event["purge_id"]] = event
        elif event.get("phase") == "acked" and event["purge_id"] in asked:
            done.append(_Purge(asked.pop(event["purge_id"]), event))
    return done, list(asked.values())


def _copies(history: History, purges: list[_Purge]) -> tuple[list[Offence], int]:
    """By what sites themselves say."""
    offences: list[Offence] = []
    examined = 0
    for event, copies, filling in followed(history, "use", "serve", "held"):
        op, t_ns = event["op"], event["t_ns"]
        late = [purge for purge in purges if purge.acked["t_ns"] < t_ns]
        if not late or event.get("cause"):
            continue
        if op == "held":
            for key in sorted(held_keys(event)):
                offences += _old(event, copies.last(event["site"], key), late)
        elif handed_over(event):
            examined += 1
            offences += _old(event, copies.last(event["site"], event["key"]), late)
        elif op in ("fetch", "pushed", "convert") and filling is not None:
            offences += _old(event, filling, late)
    return offences, examined


def _old(event: Event, copy: Filling | None, late: list[_Purge]) -> list[Offence]:
    """Was this copy computed before one of the purges that were over when this happened?"""
    stored = copy.computed if copy is not None else None
    if copy is None or stored is None:
        return []
    for purge in late:
        if purge.concerns(stored.get("tenant")) and stored["t_ns"] < purge.asked["t_ns"]:
            after_ms = (event["t_ns"] - purge.acked["t_ns"]) / 1e6
            said = (
                f"chunk {copy.key[:12]}… was {_DID.get(event['op'], 'taken')} at "
                f"{event['site']} {after_ms:.3f} ms after purge {purge.asked['purge_id']} had "
                "been acknowledged"
            )
            lineage = [one for one in copy.lineage if one is not event]
            proof = [*lineage, purge.asked, purge.acked]
            proof.sort(key=lambda one: int(one["t_ns"]))
            return [(said, [*proof, event])]
    return []


def _from_outside(history: History, purges: list[_Purge]) -> list[Offence]:
    offences: list[Offence] = []
    asked = [(one, Prefixes.of(one.request)) for one in exchanges(history)]
    for purge in purges:
        hits = []
        for one, names in asked:
            if not names or not purge.concerns(one.tenant):
                continue
            if one.sent_ns <= purge.asked["t_ns"]:
                continue
            purge.sent[one.tenant].add(names, one.request)
            if one.ok and one.sent_ns > purge.acked["t_ns"] and one.cached_tokens >= STEP_TOKENS:
                hits.append((one, names))
        for one, names in hits:
            answer = one.answers[0]
            since = purge.sent[one.tenant]
            if since.holder(names, one.cached_tokens, answer["t_ns"], one.request) is None:
                said = (
                    f"request {one.request_id} found {one.cached_tokens} tokens cached that "
                    f"nobody had asked for since purge {purge.asked['purge_id']}"
                )
                offences.append((said, [purge.asked, purge.acked, one.request, answer]))
    return offences
