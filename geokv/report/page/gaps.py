"""The seven gaps of the survey as a part of a run's page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from geokv.report.page.chart import chart
from geokv.report.page.plot_gaps import draw_attribution, draw_lru
from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Block, Fold, Heading, Para, Table

_FOLD_FROM = 12
_NONE = "–"
_ABOUT = (
    "What a survey of KV-cache systems found that none of them reports (arXiv 2607.02574), of "
    "this run. Formulas are in docs/measures.md, all figures in summary.json under gaps. n says "
    "how many samples a figure has; a percentile that n does not carry is not shown."
)
Row = dict[str, Any]
Cells = Callable[[Row], list[str]]


def gaps_section(summary: dict[str, Any], run_dir: Path) -> Section | None:
    """MG1 to MG7, a table each and two figures; None of a run from before there were gaps, or of
    which no cell counts."""
    if "gaps" not in summary:
        return None
    gaps = counting(summary["gaps"])
    if not gaps["mg7"]["cells"]:
        return None
    blocks: list[Block] = [Para(_ABOUT, quiet=True)]
    blocks += _gap(
        "MG1: remote access pattern", gaps["mg1"]["groups"], _ACCESS, _access,
        lambda row: row["chunks_read"] or row["chunks_lost"],
        _nothing_read(summary),
    )  # fmt: skip
    blocks += _gap("MG2: metadata", gaps["mg2"]["groups"], _LOOKUP, _lookup, _asked)
    blocks += _table(gaps["mg2"]["cells"], _NEWS, _news, lambda row: row["messages"])
    blocks += _gap(
        "MG3: completion", gaps["mg3"]["groups"], _COMPLETION, _completion, _always,
        "No request had to learn of the end of a transfer.",
    )  # fmt: skip
    blocks += _gap("MG4: reuse distance and residency", _whose(gaps), _REUSE, _reuse, _always)
    blocks += chart(
        lambda: draw_lru(gaps), "lru",
        "Share of touched chunks that an LRU cache of a given size would have had",
        "Of what this run touched: what an LRU cache of that size would have had, one at each site "
        "and one for all.",
    )  # fmt: skip
    blocks += _table(_stays(gaps), _STAYS, _stay, _always)
    blocks += _gap(
        "MG5: prefetch slack", gaps["mg5"]["groups"], _SLACK, _slack, _always,
        "No request waited for cached KV from below the device.",
    )  # fmt: skip
    blocks += _gap("MG6: what the tail is made of", gaps["mg6"]["groups"], _TAIL, _tail, _always)
    blocks += chart(
        lambda: draw_attribution(gaps), "attribution",
        "Parts of the time to first token of a median request and of the tail",
        "Median request above, tail below: the mean of the worst 1 % where there are 100 requests, "
        "else the slowest.",
    )  # fmt: skip
    blocks += _gap("MG7: replayable trace", _hits(gaps), _HITS, _hit, _always)
    blocks.append(
        Para(
            "trace.jsonl holds every request in Mooncake's line format and more; geokv replay RUN "
            "plays a cell again and must give these counts.",
            quiet=True,
        )
    )
    return Section("gaps", "The seven gaps", blocks)


def counting(gaps: Row) -> Row:
    """Rows of cells whose links kept to their plan: of others no number is shown (INV-7)."""
    return {
        name: {kind: [row for row in rows if row["valid"]] for kind, rows in gap.items()}
        for name, gap in gaps.items()
    }


def _nothing_read(summary: Row) -> str:
    """Why MG1 has no row: nothing came, or an older geokv did not write down for whom."""
    fetched = any(
        arm.get("fetched") for cell in summary["cells"] for arm in cell.get("arms", {}).values()
    ) or any(cell.get("fates", {}).get("fetches", {}).get("served") for cell in summary["cells"])
    if fetched:
        return "Fetches of this run do not say for which request they were: run it again to see."
    return "No request read anything from another site."


# -- tables --------------------------------------------------------------------


def _gap(
    title: str,
    rows: Sequence[Row],
    head: list[str],
    cells: Cells,
    shown: Cells | Any,
    none: str = "",
) -> list[Block]:
    table = _table(rows, head, cells, shown)
    if not table and none:
        table = [Para(none)]
    return [Heading(title, 3), *table] if table else []


def _table(rows: Sequence[Row], head: list[str], cells: Cells, shown: Any) -> list[Block]:
    kept = [row for row in rows if shown(row)]
    if not kept:
        return []
    table = Table(head, [[*_place(row), *cells(row)] for row in kept], numbers=True)
    if len(kept) <= _FOLD_FROM:
        return [table]
    return [Fold(f"{len(kept)} rows: {', '.join(head[1:4])} …", [table])]


def _place(row: Row) -> list[str]:
    """Cell and group in one column."""
    group = str(row.get("group", "")).replace("-", " ")
    return [", ".join(word for word in (row["label"], group) if word not in ("", "all"))]


def _always(row: Row) -> bool:
    return True


def _asked(row: Row) -> bool:
    return bool(row["named"] or row["lookup_share"])


def _of(value: float | None, digits: int = 3, unit: str = "") -> str:
    return _NONE if value is None else f"{value:,.{digits}f}{unit}"


def _percent(share: float | None, digits: int = 1) -> str:
    return _NONE if share is None else f"{100 * share:.{digits}f} %"


def _mid(spread: Row | None, digits: int = 3) -> str:
    return _NONE if spread is None else _of(spread["p50"], digits)


def _high(spread: Row | None, digits: int = 3) -> str:
    """The 99th percentile, or how few samples there are."""
    if spread is None or not spread["n"]:
        return _NONE
    return f"n = {spread['n']}" if spread["p99"] is None else _of(spread["p99"], digits)


# -- MG1 to MG7 ------------------------------------------------------------------

_ACCESS = [
    "cell", "requests", "with remote", "chunks each", "reads/s", "reads per chunk", "KiB per read",
    "run, chunks", "of the prompt", "read before", "lost",
]  # fmt: skip


def _access(row: Row) -> list[str]:
    size = row["bytes_per_read"]["p50"]
    lost = sum(row["chunks_lost"].values())
    return [
        f"{row['requests']:,}", f"{row['requests_with_remote']:,}",
        _of(row["chunks_per_request"], 1), _of(row["reads_per_s"], 1),
        _of(row["reads_per_chunk"], 1), _of(None if size is None else size / 1024, 0),
        _mid(row["run_chunks"], 0),
        _percent(row["remote_share"]), _percent(row["read_before"]), f"{lost:,}",
    ]  # fmt: skip


_LOOKUP = [
    "cell", "lookup p50 ms", "p99 ms", "of all TTFT", "chunks fetched by it", "nothing there",
]  # fmt: skip


def _lookup(row: Row) -> list[str]:
    return [
        _mid(row["lookup_ms"], 4), _high(row["lookup_ms"], 4), _percent(row["lookup_share"], 2),
        f"{row['named']:,}", _percent(row["wrong_location_share"], 2),
    ]  # fmt: skip


_NEWS = [
    "cell", "directory bytes", "header bytes", "per KV byte", "told after p50 ms", "p99 ms",
    "named when gone p50 ms", "p99 ms",
]  # fmt: skip


def _news(row: Row) -> list[str]:
    said = row["messages"]
    late, wrong = row["late_news_ms"], row["wrong_for_ms"]
    return [
        f"{said['directory_bytes']:,}", f"{said['header_bytes']:,}",
        _percent(said["metadata_per_kv_byte"], 3), _mid(late), _high(late), _mid(wrong),
        _high(wrong),
    ]  # fmt: skip


_COMPLETION = [
    "cell", "requests", "ends to learn of", "completion p50 µs", "p99 µs", "of all TTFT",
    "verified p50 µs", "readable p50 µs",
]  # fmt: skip


def _completion(row: Row) -> list[str]:
    return [
        f"{row['requests']:,}", _of(row["completions_per_request"], 1), _mid(row["completion_us"]),
        _high(row["completion_us"]), _percent(row["completion_share"], 3),
        _mid(row["verified_us"]), _mid(row["readable_us"]),
    ]  # fmt: skip


_REUSE = [
    "cell", "tenant", "category", "chunks", "reused here", "distance p50", "p99", "reused anywhere",
    "distance p50", "p99",
]  # fmt: skip


def _whose(gaps: Row) -> list[Row]:
    return [
        {"label": row["label"], "group": row["group"], **one}
        for row in gaps["mg4"]["groups"]
        for one in row["by"]
    ]


def _reuse(row: Row) -> list[str]:
    cells = [row["tenant"], row["category"], f"{row['chunks']:,}"]
    for where in ("here", "anywhere"):
        distance = row[where]["distance"]
        cells += [_percent(row[where]["reused_share"]), _mid(distance, 0), _high(distance, 0)]
    return cells


_STAYS = [
    "cell", "site", "tier", "tenant", "category", "chunks", "still there", "evicted", "stay p50 ms",
    "p99 ms",
]  # fmt: skip


def _stays(gaps: Row) -> list[Row]:
    return [
        {"label": row["label"], **one}
        for row in gaps["mg4"]["cells"]
        for one in row["residency"] or ()
    ]


def _stay(row: Row) -> list[str]:
    return [
        row["site"], row["tier"], row["tenant"], row["category"], f"{row['chunks']:,}",
        f"{row['open']:,}", f"{row['evicted']:,}", _mid(row["stay_ms"]), _high(row["stay_ms"]),
    ]  # fmt: skip


_SLACK = [
    "cell", "requests", "waited p50 ms", "from arrival ms", "hidden", "from last turn ms", "hidden",
    "from publication ms", "hidden",
]  # fmt: skip


def _slack(row: Row) -> list[str]:
    cells = [f"{row['requests']:,}", _mid(row["bring_ms"])]
    for known in ("from_arrival", "from_last_turn", "from_publication"):
        one = row[known]
        cells += [_mid(one["slack_ms"]), _percent(one["hidden_share"])] if one else [_NONE, _NONE]
    return cells


_TAIL = [
    "cell", "n", "TTFT p50 ms", "p95 ms", "p99 ms", "slowest ms", "worst", "more than others ms",
    "dominated by", "its share",
]  # fmt: skip


def _tail(row: Row) -> list[str]:
    ttft, worst = row["ttft_ms"], row["worst"]
    what = f"1 %: {worst['n']}" if worst["n"] else "slowest one"
    tail = worst if worst["n"] else row["slowest"]
    excess, part = tail["excess_ms"], tail["dominates"]
    return [
        f"{ttft['n']:,}", _of(ttft["p50"]), _of(ttft["p95"]), _of(ttft["p99"]), _of(ttft["max"]),
        what, _NONE if excess is None else _of(sum(excess.values())),
        _NONE if part is None else part.replace("_", " "),
        _NONE if part is None else _percent(tail["excess_share"][part]),
    ]  # fmt: skip


_HITS = ["cell", "site", "device", "dram", "disk", "remote", "computed", "remote from"]


def _hits(gaps: Row) -> list[Row]:
    return [
        {
            "label": row["label"],
            "site": site,
            "tokens": tokens,
            "from": row["remote_tokens_from"].get(site, {}),
        }
        for row in gaps["mg7"]["cells"]
        for site, tokens in row["tokens"].items()
    ]


def _hit(row: Row) -> list[str]:
    whence = ", ".join(f"{site} {count:,}" for site, count in row["from"].items())
    return [row["site"], *(f"{count:,}" for count in row["tokens"].values()), whence or _NONE]
