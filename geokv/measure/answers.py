"""Is every answer the one a cold engine gives? (INV-1)

The recompute arm of the same cell asks the same questions with nothing cached; its
answer is the reference, token by token, and so are its first-token logits.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

from geokv.measure.records import Request

REFERENCE = "recompute"
_COMPARED = frozenset({"local-hit", "remote-hit"})


@dataclass
class Comparison:
    """The answers of one cell against its recomputed ones."""

    compared: int = 0
    wrong: list[str] = field(default_factory=list)
    """One sentence per differing answer: request, place, both tokens."""
    without_reference: list[str] = field(default_factory=list)
    """Measured answers that have nothing to be compared with."""
    without_logits: list[str] = field(default_factory=list)
    """Compared answers of which, or of whose recomputed one, the site no longer had the logits."""
    logits_diff: float | None = None
    """Largest |logit - reference logit| at the first token; infinite if lengths differ."""


def compare(requests: Iterable[Request]) -> Comparison:
    """Compare the answers of one cell. Failed requests gave none and are not compared.

    Warm-up answers count too wherever their recomputed twin exists.
    """
    result = Comparison()
    for row, reference in paired(requests, _COMPARED):
        if reference is None:
            if not row.warmup:
                result.without_reference.append(row.request_id)
            continue
        result.compared += 1
        said = _difference(row, reference)
        if said:
            result.wrong.append(said)
        diff = logits_diff(row.first_logits, reference.first_logits)
        if diff is None:
            result.without_logits.append(row.request_id)
        else:
            result.logits_diff = max(diff, result.logits_diff or 0.0)
    return result


def paired(
    requests: Iterable[Request], arms: Container[str]
) -> Iterator[tuple[Request, Request | None]]:
    """Each answer of ``arms`` with the recomputed one to the same question, if there is one."""
    rows = [row for row in requests if row.status == "ok"]
    references = {(row.repeat, row.warmup): row for row in rows if row.arm == REFERENCE}
    for row in rows:
        if row.arm in arms:
            yield row, references.get((row.repeat, row.warmup))


def logits_diff(a: list[float], b: list[float]) -> float | None:
    """Largest absolute difference; None unless both were recorded."""
    if not a or not b:
        return None
    if len(a) != len(b):
        return math.inf
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def _difference(row: Request, reference: Request) -> str:
    got, asked = row.output_ids, reference.output_ids
    if got == asked:
        return ""
    place = next(
        (i for i, (x, y) in enumerate(zip(got, asked, strict=False)) if x != y),
        min(len(got), len(asked)),
    )
    shown = [str(ids[place]) if place < len(ids) else "nothing" for ids in (got, asked)]
    return (
        f"{row.request_id} ({row.arm}, repeat {row.repeat}): token {place} is {shown[0]}, "
        f"recomputed {shown[1]}"
    )
