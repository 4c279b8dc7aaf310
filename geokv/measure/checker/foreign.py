"""``foreign``: did anything cross tenants?

* A chunk was used for, or came to, another tenant than the one whose request stored it; a key that
  two tenants store shows that their salts are the same.
* A request was given a chunk of another tenant than its own.
* A request found a prefix cached that its own tenant had never sent, and another had. This is seen
  from outside: it also holds where the site's own notes are wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from geokv.measure.checker.exchanges import Exchange, exchanges
from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import Event, History
from geokv.measure.checker.prefixes import STEP_TOKENS, Prefixes

NAME, INV = "foreign", "INV-3"


def check(history: History) -> Finding:
    """Follow every key, and every use of it, by tenant."""
    owners: dict[str, Event] = {}
    asked: dict[str, Event] = {}
    offences: list[Offence] = []
    examined = 0
    for event in history.of("request", "store", "fetch", "convert", "pushed", "found", "use"):
        op, tenant = event["op"], event.get("tenant")
        if tenant is None or event.get("cause"):
            continue
        if op == "request":
            asked[event["request_id"]] = event
            continue
        examined += 1
        owner = owners.setdefault(event["key"], event)
        if owner["tenant"] != tenant:
            said = (
                f"chunk {event['key'][:12]}… of tenant {owner['tenant']} is tenant {tenant}'s in "
                f"a {op} at {event['site']}"
            )
            offences.append((said, [owner, event]))
        request = asked.get(event.get("request_id", ""))
        if request is not None and request.get("tenant") != tenant:
            said = (
                f"request {request['request_id']} of tenant {request.get('tenant')} was given a "
                f"chunk of tenant {tenant}"
            )
            offences.append((said, [request, event]))
    offences += _unexplained(history)
    offences.sort(key=lambda offence: int(offence[1][-1]["t_ns"]))
    tenants = sorted({str(event["tenant"]) for event in [*owners.values(), *asked.values()]})
    unknown = "" if examined or asked else "nothing in the history names a tenant"
    said = f"nothing crossed {len(tenants)} tenants in {examined} stores, fetches and uses"
    if len(tenants) == 1:
        said = f"all {examined} stores, fetches and uses are of the only tenant"
    return conclude(NAME, INV, offences, unknown, said)


def _unexplained(history: History) -> list[Offence]:
    """Hits in what another tenant alone has sent."""
    sent: dict[str, Prefixes] = defaultdict(Prefixes)
    hits: list[tuple[Exchange, Event, list[Hashable]]] = []
    # What was computed before the drill began counts as sent.
    for event in history.of("prepared", "request"):
        sent[event.get("tenant", "")].add(Prefixes.of(event), event)
    for one in exchanges(history):
        names = Prefixes.of(one.request)
        if names and one.answer is not None and one.ok and one.cached_tokens >= STEP_TOKENS:
            hits.append((one, one.answer, names))
    offences: list[Offence] = []
    for one, answer, names in hits:
        depth, until = one.cached_tokens, int(answer["t_ns"])
        if sent[one.tenant].holder(names, depth, until, one.request) is not None:
            continue
        for other in sorted(sent):
            whose = sent[other].holder(names, depth, until, one.request)
            if whose is not None:
                said = (
                    f"request {one.request_id} of tenant {one.tenant} found {depth} tokens "
                    f"cached that only tenant {other} had sent"
                )
                offences.append((said, [whose, one.request, answer]))
                break
    return offences
