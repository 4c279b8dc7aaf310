"""Which TTFTs of a run differ and which do not: for a terminal in a line of neighbours and one of
arms, for the Markdown report in a sentence each.

What is compared, how and with which p is in ``summary.json``, on the page and in the Markdown
report; a terminal says what a reader must know before believing that two rows of a table differ.
Of a drill that is not swept nothing is compared, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from geokv.report.words import ARM_TITLES

Difference = dict[str, Any]

_NAMED = 2
"""So many pairs are named; more are counted."""
_SAME, _FEW, _DIFFERS = "no significant difference", "too few", "differs"
_BETWEEN = {_SAME: f"{_SAME}:", _FEW: "too few to tell:", _DIFFERS: "different:"}
_FROM = {_SAME: f"{_SAME} from", _FEW: "too few to tell from", _DIFFERS: "differs from"}


def differences_in_full(summary: dict[str, Any]) -> list[str]:
    """A sentence per arm and axis and per pair of arms, and how they were tested."""
    found = summary["statistics"]
    if not found.get("said"):
        return []
    tests = found["tests"]
    made = (
        f"{tests['by']}, {tests['adjusted_for']} of them, p adjusted for all "
        "(Benjamini and Hochberg)"
    )
    return [*found["said"], *([made] if tests["adjusted_for"] else [])]


def differences_in_short(summary: dict[str, Any]) -> list[str]:
    """A line of neighbours and one of a remote hit against other arms, or what there is of them.

    An arm is named with those of its pairs that do not differ and those of which too few samples
    cannot tell, so that its others differ; an arm that has only such is said to.
    """
    said: list[str] = summary.get("statistics", {}).get("said", [])
    if len(said) < 2:
        return said
    found: list[Difference] = summary["statistics"]["differences"]
    lines = []
    if neighbours := [one for one in found if one["axis"]]:
        values = _values(summary)
        shown = _by_outcome(neighbours, lambda ones, outcome: _which(ones, outcome, values))
        lines.append("TTFT of neighbours, " + _joined(shown, _BETWEEN))
    if against := [one for one in found if not one["axis"]]:
        arm = against[0]["arms"][0]
        first = f"{'a' if arm in ARM_TITLES else 'what is'} {arm.replace('_', ' ')}"
        shown = _by_outcome(against, lambda ones, outcome: f"{_which(ones, outcome, {})} cells")
        lines.append(f"TTFT of {first}: " + _joined(shown, _FROM))
    return lines


def _values(summary: dict[str, Any]) -> dict[str, str]:
    """Label of each cell → the number that was set in it; none of several axes, or of words:
    they would take a line for themselves.
    """
    values = {}
    for cell in summary["cells"]:
        (axis, value), *others = cell["settings"].items()
        if others or not isinstance(value, int | float):
            return {}
        values[cell["label"]] = f"{value:g} km" if axis.endswith(".km") else f"{value:g}"
    return values


def _by_outcome(
    found: Sequence[Difference], which: Callable[[list[Difference], str], str]
) -> dict[str, dict[str, list[str]]]:
    """Outcome → which of the pairs → the arms of whose pairs it is the outcome."""
    by_arm: dict[str, list[Difference]] = {}
    for one in found:
        by_arm.setdefault(one["arms"][-1].replace("_", " "), []).append(one)
    shown: dict[str, dict[str, list[str]]] = {_SAME: {}, _FEW: {}, _DIFFERS: {}}
    for arm, ones in by_arm.items():
        outcomes = {one["outcome"] for one in ones}
        for outcome in outcomes - {_DIFFERS} or outcomes:
            shown[outcome].setdefault(which(ones, outcome), []).append(arm)
    return shown


def _joined(shown: dict[str, dict[str, list[str]]], words: dict[str, str]) -> str:
    parts = []
    for outcome, by_which in shown.items():
        named = ", ".join(f"{_listed(arms)} ({which})" for which, arms in by_which.items())
        if named:
            parts.append(f"{words[outcome]} {named}")
    return "; ".join(parts)


def _listed(arms: list[str]) -> str:
    *before, last = arms
    return f"{', '.join(before)} and {last}" if before else last


def _which(ones: list[Difference], outcome: str, values: dict[str, str]) -> str:
    """How many of an arm's pairs came out so; a few by name, or by the one that did not."""
    those = [one for one in ones if one["outcome"] == outcome]
    rest = [one for one in ones if one["outcome"] != outcome]
    if not rest:
        return f"all {len(ones)}"
    if values and len(those) <= _NAMED:
        return ", ".join(_pair(one, values) for one in those)
    if values and len(rest) == 1:
        return f"all but {_pair(rest[0], values)}"
    return f"{len(those)} of {len(ones)}"


def _pair(one: Difference, values: dict[str, str]) -> str:
    """``75|100 km``."""
    first, second = (values[label] for label in one["labels"])
    return f"{first.removesuffix(' km')}|{second}"
