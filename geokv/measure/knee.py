"""From which size on transfers are large enough, where a sweep changes their size."""

from __future__ import annotations

from dataclasses import dataclass

from geokv.measure.cell import CellResult
from geokv.measure.closed_form import fetch_ns, knee_bytes
from geokv.measure.lines import lines_along
from geokv.scenario.sweep import Value

SIZE = "deployment.chunk_tokens"
WITHIN = 1.1
"""Of one round trip and the bytes at the line's payload rate, which no fetch beats."""


@dataclass(frozen=True)
class Knee:
    """One line of cells that differ by the size of a transfer alone.

    Attributes:
        settings: what they share.
        measured_tokens: smallest swept size whose fetch is ``WITHIN`` the least it can take;
            None when none is.
        predicted_tokens: the same by the closed form.
        paper_tokens: where the closed form's line stops to run dry, between the swept sizes; None
            with one transfer at a time, which always lets it.
    """

    settings: dict[str, Value]
    measured_tokens: int | None
    predicted_tokens: int | None
    paper_tokens: float | None


def knees(results: list[CellResult]) -> list[Knee]:
    """One per combination of the other settings; none where no size is swept."""
    seen = [
        result
        for result in results
        if SIZE in result.cell.settings
        and (one := result.fetching.get("remote-hit")) is not None
        and one.predicted_ns is not None
    ]
    return [_knee(settings, line) for settings, line in lines_along(SIZE, seen)]


def _knee(settings: dict[str, Value], line: list[CellResult]) -> Knee:
    line.sort(key=_tokens)
    measured = predicted = None
    for result in line:
        one, path = result.fetching["remote-hit"], result.path
        assert path is not None and one.predicted_ns is not None
        moved = result.arms["remote-hit"].wire_bytes
        least_ns = fetch_ns(1, moved, path.rtt_ns, path.payload_rate_bps, 1)
        if measured is None and one.time_ns <= WITHIN * least_ns:
            measured = _tokens(result)
        if predicted is None and one.predicted_ns <= WITHIN * least_ns:
            predicted = _tokens(result)
    last = line[-1]
    assert last.path is not None
    window = last.cell.scenario.cache.substrate.window
    paper = knee_bytes(last.path.rtt_ns, last.path.payload_rate_bps, window)
    one = last.fetching["remote-hit"]
    per_token = last.arms["remote-hit"].wire_bytes / (one.chunks * _tokens(last))
    return Knee(settings, measured, predicted, None if paper is None else paper / per_token)


def _tokens(result: CellResult) -> int:
    return result.cell.scenario.deployment.chunk_tokens
