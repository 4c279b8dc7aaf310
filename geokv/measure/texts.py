"""Answers of a run over a real text, in words: the recomputed one, and where others differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from geokv.measure.answers import REFERENCE
from geokv.measure.cell import CellResult
from geokv.measure.records import Request
from geokv.scenario import Scenario
from geokv.scenario.model import CONTROLS
from geokv.scenario.workload import Document

_REMOTE = "remote-hit"


def shown_answers(
    scenario: Scenario, cells: Sequence[CellResult], by_cell: Mapping[int, Sequence[Request]]
) -> list[dict[str, Any]]:
    """One mapping per question of a document; nothing for prompts that are no text.

    ``fetched`` has an entry per cell, ``controls`` one per control arm; each says whether the
    words are the recomputed ones of its own cell, and gives other words in full.
    """
    workload = scenario.workload
    if not isinstance(workload, Document):
        return []
    found: dict[tuple[int, str, int], Request] = {}
    for index, rows in by_cell.items():
        found.update({(index, row.arm, row.repeat): row for row in rows if row.status == "ok"})
    return [_answer(number, text, cells, found) for number, text in enumerate(workload.questions)]


def _answer(
    number: int,
    question: str,
    cells: Sequence[CellResult],
    found: Mapping[tuple[int, str, int], Request],
) -> dict[str, Any]:
    answer = None
    fetched = []
    controls: dict[str, dict[str, Any]] = {}
    for cell in cells:
        reference = found.get((cell.cell.index, REFERENCE, number))
        if reference is None:
            continue
        answer = reference.text.strip() if answer is None else answer
        remote = found.get((cell.cell.index, _REMOTE, number))
        if remote is not None:
            fetched.append({"km": cell.cell.km, **_against(remote, reference)})
        for arm in CONTROLS:
            row = found.get((cell.cell.index, arm, number))
            if row is not None:
                seen = _against(row, reference)
                shown = controls.setdefault(arm, {"cells": 0, "differ": 0, "text": None})
                shown["cells"] += 1
                shown["differ"] += not seen["same"]
                if shown["text"] is None:
                    shown["text"] = seen["text"]
    return {"question": question, "answer": answer, "fetched": fetched, "controls": controls}


def _against(row: Request, reference: Request) -> dict[str, Any]:
    same = row.output_ids == reference.output_ids
    return {"same": same, "text": None if same else row.text.strip()}
