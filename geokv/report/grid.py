"""The wide table of a run as titles and rows of text, for formats that have room for it."""

from __future__ import annotations

from typing import Any

from geokv.report import words


def wide_table(summary: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Column titles, and a row of texts per cell of the sweep."""
    arms = [arm for arm in words.ARM_TITLES if arm.replace("_", "-") in summary["ran"]["arms"]]
    others = words.other_settings(summary)
    titles = [*others, "km", "RTT asked ms", "RTT measured ms", "goodput ratio"]
    titles += [f"{words.ARM_TITLES[arm]} TTFT p50 ms" for arm in arms]
    titles += ["gain", "change vs 0 km", "bound ms", "ratio to bound", "wrong", "GiB moved"]
    if others:
        titles += ["fetch ms", "goodput Gb/s", "chunks", "round trips paid", "% off closed form"]
    titles += [f"{words.ARM_TITLES[arm]} energy proxy J" for arm in arms]
    titles += ["valid"]
    rows = [
        [*(words.setting(cell, path) for path in others), *_row(cell, arms, bool(others))]
        for cell in summary["cells"]
    ]
    return titles, rows


def _row(cell: dict[str, Any], arms: list[str], fetching: bool) -> list[str]:
    remote = cell["arms"].get("remote_hit", {})
    return [
        words.km(cell),
        words.number(cell["rtt_asked_ms"], 3),
        words.number(cell["rtt_measured_ms"], 3),
        words.number(cell["goodput_ratio"], 3),
        *(words.ttft(cell, arm) for arm in arms),
        words.percent(cell["gain"]),
        words.change(cell),
        words.ms(remote.get("bound_ms")),
        words.ratio(remote.get("ratio_to_bound")),
        words.wrong(cell),
        words.gib(cell),
        *(words.fetching(cell) if fetching else ()),
        *(words.joules(cell, arm) for arm in arms),
        "yes" if cell["valid"] else "no",
    ]
