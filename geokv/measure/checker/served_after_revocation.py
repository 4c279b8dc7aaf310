"""``served-after-revocation``: did a key that had been revoked still open a door?

From the moment the doors of all running sites were seen to be shut to a tenant, none of its
requests that is sent then may be answered, or be given any chunk.
"""

from __future__ import annotations

from geokv.measure.checker.exchanges import exchanges
from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import Event, History

NAME, INV = "served-after-revocation", "INV-3"


def asked_for(history: History) -> bool:
    """Is there a key that was to be revoked?"""
    return any(event.get("kind") == "key-revoke" for event in history.of("fault"))


def check(history: History) -> Finding:
    """Look for answers to a tenant after its key was seen to be revoked."""
    shut: dict[str, Event] = {}
    for event in history.of("fault"):
        if event.get("kind") == "key-revoke" and event["phase"] == "took-effect":
            shut.setdefault(event["target"], event)
    given: dict[str, Event] = {}
    for event in history.of("use"):
        given.setdefault(event["request_id"], event)
    offences: list[Offence] = []
    examined = refused = 0
    for one in exchanges(history):
        revoked = shut.get(one.tenant)
        if revoked is None or one.sent_ns < revoked["t_ns"]:
            continue
        examined += 1
        who = f"request {one.request_id} of {one.tenant} to {one.site}, whose key was revoked,"
        if one.ok:
            offences.append((f"{who} was answered", [revoked, one.request, one.answers[0]]))
        elif one.request_id in given:
            use = given[one.request_id]
            offences.append((f"{who} was given a chunk", [revoked, one.request, use]))
        refused += one.answer is not None and one.answer["status"] == "refused"
    unknown = ""
    if not shut:
        unknown = "no key was seen to be revoked"
    elif not examined:
        unknown = f"{', '.join(shut)} asked for nothing after losing the key"
    said = f"{refused} of {examined} requests with a revoked key were refused, none was answered"
    return conclude(NAME, INV, offences, unknown, said)
