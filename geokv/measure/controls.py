"""Do wrong blocks show? A control arm asks the same questions over KV that is wrong on purpose.

The first-token logits are what is judged: a wrong block always moves them, while the words of a
greedy answer may come out the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from geokv.measure.answers import logits_diff, paired
from geokv.measure.records import Request
from geokv.scenario.model import CONTROLS


@dataclass
class ControlResult:
    """One control arm of one cell, against the recomputed answers of that cell."""

    arm: str
    compared: int = 0
    words_differ: int = 0
    """Answers with other tokens than the recomputed ones."""
    diffs: list[float] = field(default_factory=list)
    """Largest |logit - recomputed logit| at the first token, one per answer."""
    without_reference: list[str] = field(default_factory=list)
    """Answers with nothing, or no logits, to be compared with."""


def compare_controls(requests: Iterable[Request]) -> list[ControlResult]:
    """Every control arm of one cell; failed requests gave no answer and are not compared."""
    results: dict[str, ControlResult] = {}
    for row, reference in paired(requests, CONTROLS):
        result = results.setdefault(row.arm, ControlResult(row.arm))
        diff = logits_diff(row.first_logits, reference.first_logits) if reference else None
        if reference is None or diff is None:
            result.without_reference.append(row.request_id)
            continue
        result.compared += 1
        result.words_differ += row.output_ids != reference.output_ids
        result.diffs.append(diff)
    return list(results.values())
