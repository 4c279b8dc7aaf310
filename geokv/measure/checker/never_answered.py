"""``never-answered``: did every request end by its deadline, with an answer or a clear error?

The end is the client's own stamp; the deadline of the request allows for the way there and back.
"""

from __future__ import annotations

from geokv.measure.checker.exchanges import exchanges
from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import Event, History

NAME, INV = "never-answered", "INV-4"


def check(history: History) -> Finding:
    """Look for the end of every request, and at its stamp."""
    ends = list(history.of("drill-end"))
    end: Event | None = ends[-1] if ends else None
    offences: list[Offence] = []
    open_ends = 0
    asked = exchanges(history)
    for one in asked:
        answer = one.answer
        deadline_ns = one.request["deadline_ns"]
        if answer is None:
            if end is None:
                open_ends += 1
            else:
                said = f"request {one.request_id} to {one.site} got neither answer nor error"
                offences.append((said, [one.request, end]))
        elif answer["done_ns"] > deadline_ns:
            late_ms = (answer["done_ns"] - deadline_ns) / 1e6
            said = f"request {one.request_id} ended {late_ms:.1f} ms after its deadline"
            offences.append((said, [one.request, answer]))
        elif answer["status"] != "ok" and not answer.get("error"):
            said = f"request {one.request_id} ended as {answer['status']} without saying why"
            offences.append((said, [one.request, answer]))
    unknown = ""
    if open_ends:
        unknown = f"the history ends before {open_ends} requests did"
    elif not asked:
        unknown = "there is no request in the history"
    return conclude(NAME, INV, offences, unknown, f"all {len(asked)} requests ended in time")
