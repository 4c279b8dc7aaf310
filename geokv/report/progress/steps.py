"""A step of a run in words."""

from __future__ import annotations

from typing import Any

_SAID = {
    "folder": "booting",
    "lab": "building the network",
    "sites": "starting sites",
    "check": "checking links",
    "quiesce": "looking at the books",
    "cold": "asking a cold engine",
    "report": "judging and drawing",
}


def say(step: dict[str, Any]) -> str:
    """A step of a run in a few words; empty for one that is only counted."""
    event = step["event"]
    if event == "cell":
        return f"cell {step['label']}"
    if event == "fault":
        return f"{step['name']}: {str(step['phase']).replace('-', ' ')}"
    return _SAID.get(event, "")


def clock_words(seconds: float) -> str:
    """A duration as people read it: ``41 s``, ``2 min 05 s``, ``3 h 20 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
