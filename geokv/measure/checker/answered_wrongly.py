"""``answered-wrongly``: is every answer what a cold engine gives to the same prompt?

Token by token; character by character where the site that knew the tokens is gone. Of an answer
that ended in an error, what came before it must be the beginning of the cold engine's.
"""

from __future__ import annotations

from collections.abc import Sequence

from geokv.measure.checker.exchanges import exchanges, prompt_name
from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import Event, History

NAME, INV = "answered-wrongly", "INV-1"


def check(history: History) -> Finding:
    """Compare every answer with the cold engine's."""
    offences, compared, lonely = compare(history)
    unknown = f"{lonely} answers have no cold engine's to compare with" if lonely else ""
    if not compared and not lonely:
        unknown = "there is no answer in the history"
    examined = f"all {compared} answers are those of a cold engine"
    return conclude(NAME, INV, offences, unknown, examined)


def compare(history: History) -> tuple[list[Offence], int, int]:
    """Offences (request, answer and reference each), how many answers were compared, and how
    many had nothing to be compared with."""
    cold: dict[object, Event] = {}
    for event in history.of("cold"):
        cold.setdefault(prompt_name(event), event)
    offences: list[Offence] = []
    compared = lonely = 0
    for one in exchanges(history):
        for answer in one.answers:
            what = "text" if answer.get("output_ids") is None else "output_ids"
            got = answer.get(what)
            if not got and answer["status"] != "ok":
                continue
            reference = cold.get(prompt_name(one.request))
            if got is None or reference is None or what not in reference:
                lonely += 1
                continue
            compared += 1
            right = reference[what]
            if got != (right if answer["status"] == "ok" else right[: len(got)]):
                said = f"request {one.request_id}: {_difference(what, got, right)}"
                offences.append((said, [one.request, answer, reference]))
    offences.sort(key=lambda offence: int(offence[1][1]["t_ns"]))
    return offences, compared, lonely


def _difference(what: str, got: Sequence[object], right: Sequence[object]) -> str:
    place = next(
        (i for i, (x, y) in enumerate(zip(got, right, strict=False)) if x != y),
        min(len(got), len(right)),
    )
    shown = [str(ids[place]) if place < len(ids) else "nothing" for ids in (got, right)]
    unit = "token" if what == "output_ids" else "character"
    return f"{unit} {place} is {shown[0]}, a cold engine gives {shown[1]}"
