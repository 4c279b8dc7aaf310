"""Answers over a real text, as every format for people shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CONTROL_WORDS = {
    "control-foreign": "with another text's KV planted",
    "control-corrupt": "with one damaged block planted",
}


@dataclass(frozen=True)
class Answer:
    """``ok`` is False where a fetched answer is not the recomputed one."""

    question: str
    answer: str
    fetched: str
    ok: bool
    controls: list[str]


def answers(summary: dict[str, Any]) -> list[Answer]:
    """One per question; none for a run without a text."""
    return [_answer(data) for data in summary.get("answers", [])]


def _answer(data: dict[str, Any]) -> Answer:
    fetched = data["fetched"]
    same = [f"{one['km']:g}" for one in fetched if one["same"]]
    other = [f"{_quoted(one['text'])} at {one['km']:g} km" for one in fetched if not one["same"]]
    parts = [f"identical at {', '.join(same)} km"] if same else []
    parts += [f"DIFFERENT: {text}" for text in other]
    return Answer(
        question=data["question"],
        answer=data["answer"] if data["answer"] is not None else "not recomputed",
        fetched="; ".join(parts) or "nothing was fetched",
        ok=not other,
        controls=[_control(arm, shown) for arm, shown in data["controls"].items()],
    )


def _control(arm: str, shown: dict[str, Any]) -> str:
    place = f"{CONTROL_WORDS[arm]}: "
    if not shown["differ"]:
        return f"{place}the same words (its logits are judged below)"
    times = "" if shown["differ"] == shown["cells"] else f" in {shown['differ']}/{shown['cells']}"
    return f"{place}{_quoted(shown['text'])}{times}"


def _quoted(text: str) -> str:
    return f"«{text}»" if text else "no word at all"
