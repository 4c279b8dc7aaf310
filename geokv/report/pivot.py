"""The numbers of a figure as a small table, for people who read numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geokv.measure.hits import SOURCES
from geokv.report import words
from geokv.report.quantities import QUANTITIES, shown, value

ARMS = ("local_hit", "remote_hit")


@dataclass(frozen=True)
class Pivot:
    """A table: what it says, its head, and its rows of text."""

    title: str
    head: list[str]
    rows: list[list[str]]


def pivots(summary: dict[str, Any]) -> list[Pivot]:
    """One per figure that the scenario asks for, and what a sweep shows as a whole."""
    cells = compared(summary)
    tables = [_pivot(figure, cells) for figure in summary.get("figures", [])]
    if summary.get("crossovers"):
        tables.append(_crossovers(summary["crossovers"]))
    if summary.get("knees"):
        tables.append(_knees(summary["knees"]))
    if summary.get("stops"):
        tables.append(_stops(summary["stops"]))
    return tables


def compared(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Cells of the sweep; the control of a drill is none."""
    return [cell for cell in summary["cells"] if not cell.get("control")]


def axis_word(title: str) -> str:
    """An axis as a table's head has it: ``chunk_tokens``, ``a-b km``."""
    if title.startswith("links."):
        return title.removeprefix("links.").replace(".", " ")
    return title.rsplit(".", 1)[-1]


def axis_label(title: str) -> str:
    """An axis in words, for along a figure: ``chunk tokens``."""
    return axis_word(title).replace("_", " ")


def values_of(cells: list[dict[str, Any]], axis: str | None) -> list[Any]:
    """The values of an axis in the order they were run; ``[None]`` without an axis."""
    if axis is None:
        return [None]
    return list(dict.fromkeys(cell["settings"][axis] for cell in cells))


def pick(cells: list[dict[str, Any]], wanted: dict[str | None, Any]) -> dict[str, Any] | None:
    """The cell with these values; None when it was not run."""
    asked = {axis: one for axis, one in wanted.items() if axis is not None}
    for cell in cells:
        if all(cell["settings"].get(axis) == one for axis, one in asked.items()):
            return cell
    return None


def _pivot(figure: dict[str, Any], cells: list[dict[str, Any]]) -> Pivot:
    if figure["kind"] == "tiers":
        return _tiers(figure, cells)
    x, of = figure["x"], figure["of"]
    inner = figure["y"] if figure["kind"] == "heat" else figure["lines"]
    outer = [axis for axis in (figure.get("rows"), figure["panels"], inner) if axis is not None]
    across = values_of(cells, x)
    rows: dict[tuple[Any, ...], list[str]] = {}
    for cell in cells:
        key = tuple(cell["settings"][axis] for axis in outer)
        texts = rows.setdefault(key, [words.NONE] * len(across))
        text = shown(value(cell, of), of) if cell["valid"] else words.VOID
        texts[across.index(cell["settings"][x])] = text
    places = {axis: values_of(cells, axis) for axis in outer}
    order = sorted(
        rows, key=lambda key: [places[a].index(v) for a, v in zip(outer, key, strict=True)]
    )
    return Pivot(
        f"{figure['title']}: {QUANTITIES[of].label}",
        [*map(axis_word, outer), *(f"{axis_word(x)} {one}" for one in across)],
        [[*map(str, key), *rows[key]] for key in order],
    )


def _crossovers(found: list[dict[str, Any]]) -> Pivot:
    head = [axis_word(axis) for axis in found[0]["settings"]]
    rows = [
        [
            *map(str, one["settings"].values()),
            *(words.number(one[key], 2) for key in ("measured_gbps", "predicted_gbps")),
            words.NONE if one["off_percent"] is None else f"{one['off_percent']:+.1f}",
            words.number(one.get("formula_gbps"), 2),
        ]
        for one in found
    ]
    title = "Break-even: the line rate from which on a remote hit is faster, Gb/s"
    return Pivot(title, [*head, "measured Gb/s", "on paper", "off %", "B/G at peak"], rows)


def _knees(found: list[dict[str, Any]]) -> Pivot:
    head = [axis_word(axis) for axis in found[0]["settings"]]
    rows = [
        [
            *map(str, one["settings"].values()),
            *(str(one[key] or words.NONE) for key in ("measured_tokens", "predicted_tokens")),
            words.number(one["paper_tokens"], 1),
        ]
        for one in found
    ]
    title = (
        "Knee: the smallest swept size, in tokens, whose fetch takes at most 10 % more than one "
        "round trip and the bytes; and where the line stops to run dry"
    )
    return Pivot(title, [*head, "measured", "closed form", "runs dry below"], rows)


def _stops(found: list[dict[str, Any]]) -> Pivot:
    head = [axis_word(axis) for axis in found[0]["settings"]]
    rows = []
    for one in found:
        highest = f"> {one['loads'][-1]:.2f}"
        shares = [
            highest if one[key] is None else f"{one[key]:.2f}"
            for key in ("median", "p99", "slowest")
        ]
        if not one["p99_carried"]:
            shares[1] = words.NONE
        if one["faster_again"]:
            again = ", ".join(f"{load:.2f}" for load in one["faster_again"])
            shares[0] += f", but faster at {again}"
        paper = words.number(one["formula"], 2) if one["ours"] else "never: another line"
        rows.append([*map(str, one["settings"].values()), *shares, paper])
    title = (
        "Where to stop fetching: the load, as a share of the line, at which the TTFT of fetching "
        "passes that of computing; on paper (C - F) / (C - F + w), with C computed, F fetched and "
        "w on the wire over the empty line"
    )
    return Pivot(title, [*head, "median", "p99", "slowest", "on paper"], rows)


def _tiers(figure: dict[str, Any], cells: list[dict[str, Any]]) -> Pivot:
    """A row per cell and arm: share of prompt tokens and TTFT by tier."""
    outer = [axis for axis in (figure["panels"], figure["x"]) if axis is not None]
    arms = [arm for arm in ARMS if arm in cells[0]["arms"]]
    seen = [
        tier
        for tier in SOURCES
        if any(cell["arms"][arm]["hits"][tier]["requests"] for cell in cells for arm in arms)
        or any(cell["arms"][arm]["hits"][tier]["share"] for cell in cells for arm in arms)
    ]
    rows = []
    for cell in cells:
        for arm in arms:
            hits = cell["arms"][arm]["hits"]
            row = [str(cell["settings"][axis]) for axis in outer]
            row.append(words.ARM_TITLES[arm])
            row += [words.percent(hits[tier]["share"]) for tier in seen]
            times = [hits[tier]["ttft_p50_ms"] for tier in seen]
            row += [words.ms(one) if cell["valid"] else words.VOID for one in times]
            row.append(words.ttft(cell, arm))
            rows.append(row)
    head = [*map(axis_word, outer), "arm", *(f"{tier} %" for tier in seen)]
    head += [f"{tier} ms" for tier in seen] + ["TTFT p50 ms"]
    return Pivot(
        f"{figure['title']}: share of prompt tokens by tier, and median TTFT of the requests whose "
        "slowest tier it was",
        head,
        rows,
    )
