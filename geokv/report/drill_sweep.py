"""The table of a drill that is swept and compares fetching with computing: a row per cell."""

from __future__ import annotations

from typing import Any

from geokv.report import words

FETCHED, COMPUTED = "cached", "cold"
_TIMES = ("ttft_p50_ms", "ttft_p99_ms")
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
    """Column heads; ``short`` breaks them for a terminal and leaves out what can be seen
    elsewhere."""
    settings = [
        words.short_title(path) if short else path for path in words.other_settings(summary)
    ]
    lost = ["lost"] if short else list(_FETCHES)
    heads = [*settings, "km", "asked", "answered", "fetch p50 ms", "p99 ms", "compute p50 ms"]
    heads += ["p99 ms", "goodput Gb/s", *lost]
    for name in outages(summary):
        heads += [f"{name}: fetch p50 ms", "p99 ms", "compute p50 ms", "p99 ms", "fetched of asked"]
        heads.append("first ms")
    heads.append("verdict")
    return [head.replace(" ", "\n") for head in heads] if short else heads


def sweep_rows(summary: dict[str, Any], short: bool = False) -> list[list[str]]:
    """As ``sweep_titles``. A cell whose links were off shows no times (INV-7)."""
    paths, names = words.other_settings(summary), outages(summary)
    return [_row(cell, paths, names, short) for cell in measured(summary)]


def _row(cell: dict[str, Any], paths: list[str], names: list[str], short: bool) -> list[str]:
    fetches = cell["fates"]["fetches"]
    lost = fetches["retried"] + fetches["recomputed"] + fetches["failed"]
    row = [words.setting(cell, path) for path in paths]
    row += [words.km(cell), str(cell["requests"]), str(cell["answered"])]
    row += _times(cell, cell["kinds"])
    goodput = cell["kinds"][FETCHED]["goodput_gbps"]
    row.append(words.number(goodput, 1) if cell["valid"] else words.VOID)
    row += [str(lost)] if short else [str(fetches[fate]) for fate in _FETCHES]
    faults = {fault["name"]: fault["during"] or {} for fault in cell["faults"]}
    for name in names:
        during = faults.get(name, {})
        kinds = during.get("kinds", {})
        row += _times(cell, kinds)
        fetched = kinds.get(FETCHED, {"remote": 0, "asked": 0})
        row.append(f"{fetched['remote']}/{fetched['asked']}")
        again = words.ms(during.get("first_remote_ms"))
        row.append(again if cell["valid"] else words.VOID)
    return [*row, cell["verdict"]]


def _times(cell: dict[str, Any], kinds: dict[str, Any]) -> list[str]:
    if not cell["valid"]:
        return [words.VOID] * 4
    return [
        words.ms(kinds.get(kind, {}).get(one)) for kind in (FETCHED, COMPUTED) for one in _TIMES
    ]


def sweep_columns(cell: dict[str, Any]) -> dict[str, Any]:
    """The same numbers for ``table.csv``: column → number, None or nothing."""
    row: dict[str, Any] = {}
    for kind, one in cell["kinds"].items():
        row.update({f"{kind}_{name}": one[name] for name in (*_TIMES, "goodput_gbps")})
    for fault in cell["faults"]:
        during = fault["during"]
        if during is None or not during["kinds"]:
            continue
        for kind, one in during["kinds"].items():
            names = ("asked", "remote", *_TIMES)
            row.update({f"{fault['name']}_{kind}_{name}": one[name] for name in names})
        row[f"{fault['name']}_first_remote_ms"] = during["first_remote_ms"]
    return row if cell["valid"] else dict.fromkeys(row)
