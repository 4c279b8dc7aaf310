"""The table of a drill that is swept and compares fetching with computing: a row per cell."""

from __future__ import annotations

from typing import Any

from geokv.report import words
from geokv.report.drill_words import TTFTS

FETCHED, COMPUTED = "cached", "cold"
_WORDS = ("p50", "p99", "max")
_FETCHES = ("served", "unused", "retried", "recomputed", "failed", "wrong")


def is_sweep(summary: dict[str, Any]) -> bool:
    """Whether its cells have settings of their own, and what this table compares."""
    return bool(summary["ran"]["swept"]) and all(
        {FETCHED, COMPUTED} <= cell["kinds"].keys() for cell in measured(summary)
    )


def measured(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells that are no control."""
    return [cell for cell in summary["cells"] if not cell["control"]]


def outages(summary: dict[str, Any]) -> list[str]:
    """Names of the faults that began when requests had been answered and that cover a part of the
    stream: what was asked meanwhile is worth columns of its own."""
    return list(
        dict.fromkeys(
            fault["name"]
            for cell in measured(summary)
            for fault in cell["faults"]
            if fault["during"] is not None and fault["kind"] != "background"
        )
    )


def sweep_titles(summary: dict[str, Any], short: bool = False) -> list[str]:
    """Column heads; ``short`` breaks them for a terminal and leaves out what has no room there."""
    heads = [head for head, _, _ in _columns(summary, measured(summary)[0], short)]
    return [head.replace(" ", "\n") for head in heads] if short else heads


def sweep_rows(summary: dict[str, Any], short: bool = False) -> list[list[str]]:
    """As ``sweep_titles``. A cell whose links were off shows no times (INV-7)."""
    return [[text for _, text, _ in _columns(summary, cell, short)] for cell in measured(summary)]


def _columns(
    summary: dict[str, Any], cell: dict[str, Any], short: bool
) -> list[tuple[str, str, bool]]:
    """Head, text and whether a terminal shows it, of every column of a cell."""
    paths, names = words.other_settings(summary), outages(summary)
    fetches = cell["fates"]["fetches"]
    lost = fetches["retried"] + fetches["recomputed"] + fetches["failed"]
    columns = [
        (words.short_title(path) if short else path, words.setting(cell, path), True)
        for path in paths
    ]
    columns += [
        ("km", words.km(cell), True),
        ("asked", str(cell["requests"]), not names),
        ("answered", str(cell["answered"]), not names),
    ]
    tail = "p99" if _carried(summary) else "max"
    columns += _times(cell, "", cell["kinds"], () if names else ("p50", tail))
    goodput = cell["kinds"][FETCHED]["goodput_gbps"]
    shown = words.number(goodput, 1) if cell["valid"] else words.VOID
    columns.append(("goodput Gb/s", shown, not names))
    columns += [(fate, str(fetches[fate]), False) for fate in _FETCHES]
    if short:
        columns.append(("lost", str(lost), True))
    faults = {fault["name"]: fault["during"] or {} for fault in cell["faults"]}
    for name in names:
        during = faults.get(name, {})
        kinds = during.get("kinds", {})
        columns += _times(cell, f"{name}: ", kinds, ("p50", tail) if len(names) == 1 else ())
        fetched = kinds.get(FETCHED, {"remote": 0, "asked": 0})
        again = words.ms(during.get("first_remote_ms")) if cell["valid"] else words.VOID
        columns += [
            (f"{name}: fetched of asked", f"{fetched['remote']}/{fetched['asked']}", True),
            (f"{name}: first fetched ms", again, True),
        ]
    columns.append(("verdict", cell["verdict"], True))
    return [column for column in columns if column[2] or not short]


def _carried(summary: dict[str, Any]) -> bool:
    """Whether a terminal, which has room for one of them, shows a p99 or the slowest."""
    return any(
        kind["ttft_p99_ms"] is not None
        for cell in measured(summary)
        for kind in cell["kinds"].values()
    )


def _times(
    cell: dict[str, Any], place: str, kinds: dict[str, Any], terminal: tuple[str, ...]
) -> list[tuple[str, str, bool]]:
    return [
        (
            f"{place}{word} {name} ms",
            words.ms(kinds.get(kind, {}).get(key)) if cell["valid"] else words.VOID,
            name in terminal,
        )
        for kind, word in ((FETCHED, "fetch"), (COMPUTED, "compute"))
        for name, key in zip(_WORDS, TTFTS, strict=True)
    ]


def sweep_columns(cell: dict[str, Any]) -> dict[str, Any]:
    """The same numbers for ``table.csv``: column → number, None or nothing."""
    row: dict[str, Any] = {}
    for kind, one in cell["kinds"].items():
        row.update({f"{kind}_{name}": one[name] for name in (*TTFTS, "goodput_gbps")})
    for fault in cell["faults"]:
        during = fault["during"]
        if during is None or not during["kinds"]:
            continue
        for kind, one in during["kinds"].items():
            names = ("asked", "remote", *TTFTS)
            row.update({f"{fault['name']}_{kind}_{name}": one[name] for name in names})
        row[f"{fault['name']}_first_remote_ms"] = during["first_remote_ms"]
    return row if cell["valid"] else dict.fromkeys(row)
