"""The hand-written run again, with a text, two questions about it and both control arms."""

from __future__ import annotations

from typing import Any

from handwritten import SCENARIO, Run

CONTROLS = ("control-foreign", "control-corrupt")
QUESTIONS = ["How long?", "Where to?"]


def scenario(**expect: Any) -> dict[str, Any]:
    data = {name: value for name, value in SCENARIO.items() if name != "expect"}
    data["workload"] = {
        "kind": "document",
        "provider": "a",
        "asker": "b",
        "text": {"file": "text.txt", "content": "A text."},
        "foreign": {"file": "other.txt", "content": "Another."},
        "questions": QUESTIONS,
    }
    data["arms"] = ["recompute", "local-hit", "remote-hit", *CONTROLS]
    data["expect"] = {"answers_equal": True, "controls_differ": True, **expect}
    return data


def run(**expect: Any) -> Run:
    made = Run(scenario(**expect))
    made.manifest |= {"prompt": {"prefix_tokens": 1036, "question_tokens": 14}}
    for cell in made.cells:
        cell["planted"] = dict.fromkeys(CONTROLS, "chunk 00 does not match its checksums")
    for row in made.requests:
        row["text"] = f" answer {row['repeat']}"
        if row["arm"] in CONTROLS:
            row |= {"source": "dram", "chunks_local": 16, "wire_bytes": 0}
            row["first_logits"] = [0.5, 7.0, 1.0]
            if row["repeat"] == 0:
                row |= {"output_ids": [9, 9], "text": " nonsense"}
    return made
