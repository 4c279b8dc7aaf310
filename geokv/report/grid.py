"""The wide table of a run as titles and rows of text, for formats that have room for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geokv.report import words


@dataclass(frozen=True)
class Column:
    """``title`` stands alone; under a heading ``group`` that it shares with its neighbours it is
    ``short``. Columns without neighbours have no group."""

    title: str
    group: str = ""
    short: str = ""


def wide_columns(summary: dict[str, Any]) -> list[Column]:
    """What ``wide_table`` has, in its order."""
    arms = _arms(summary)
    others = words.other_settings(summary)
    columns = [Column(path) for path in others]
    columns += [
        Column("km"),
        Column("RTT asked ms", "RTT, ms", "asked"),
        Column("RTT measured ms", "RTT, ms", "measured"),
        Column("goodput ratio"),
    ]
    columns += [_of_arm("TTFT p50", "ms", arm) for arm in arms]
    columns += [
        Column("gain"),
        Column("change vs 0 km"),
        Column("bound ms", "lower bound", "ms"),
        Column("ratio to bound", "lower bound", "ratio"),
        Column("wrong"),
        Column("GiB moved"),
    ]
    if others:
        columns += [
            Column("fetch ms", "fetch", "ms"),
            Column("goodput Gb/s", "fetch", "Gb/s"),
            Column("chunks", "fetch", "chunks"),
            Column("round trips paid", "fetch", "round trips paid"),
            Column("% off closed form", "fetch", "% off closed form"),
        ]
    columns += [_of_arm("energy proxy", "J", arm) for arm in arms]
    return [*columns, Column("valid")]


def _of_arm(what: str, unit: str, arm: str) -> Column:
    name = words.ARM_TITLES[arm]
    return Column(f"{name} {what} {unit}", f"{what}, {unit}", name)


def _arms(summary: dict[str, Any]) -> list[str]:
    return [arm for arm in words.ARM_TITLES if arm.replace("_", "-") in summary["ran"]["arms"]]


def wide_table(summary: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Column titles, and a row of texts per cell of the sweep."""
    others = words.other_settings(summary)
    rows = [
        [*(words.setting(cell, path) for path in others), *_row(cell, _arms(summary), bool(others))]
        for cell in summary["cells"]
    ]
    return [column.title for column in wide_columns(summary)], rows


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
