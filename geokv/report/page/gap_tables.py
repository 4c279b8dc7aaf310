"""The tables of the seven gaps: each a list of columns, a title with what stands below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from geokv.report.sheet.blocks import Block, Fold, Table

_FOLD_FROM = 12
_NONE = "–"
Row = dict[str, Any]


class Column(NamedTuple):
    """A title, and the text of a row below it."""

    title: str
    text: Callable[[Row], str]


def gap_table(rows: Sequence[Row], columns: Sequence[Column]) -> list[Block]:
    """A line per row, headed by its cell and group; nothing of no rows, a fold of many."""
    if not rows:
        return []
    lines = [[_place(row), *(column.text(row) for column in columns)] for row in rows]
    head = ["cell", *(column.title for column in columns)]
    table = Table(head, lines, numbers=True)
    if len(rows) <= _FOLD_FROM:
        return [table]
    return [Fold(f"{len(rows)} rows: {', '.join(head[1:4])} …", [table])]


def _place(row: Row) -> str:
    """Cell and group in one column."""
    group = str(row.get("group", "")).replace("-", " ")
    return ", ".join(word for word in (row["label"], group) if word not in ("", "all"))


# -- kinds of columns: a path like "here.distance" leads to what is shown ----------


def _at(row: Row | None, path: str) -> Any:
    """None where something on the way is None."""
    value: Any = row
    for key in path.split("."):
        value = None if value is None else value[key]
    return value


def _number(value: float | None, digits: int = 3) -> str:
    return _NONE if value is None else f"{value:,.{digits}f}"


def _percent(share: float | None, digits: int = 1) -> str:
    return _NONE if share is None else f"{100 * share:.{digits}f} %"


def _word(title: str, path: str) -> Column:
    return Column(title, lambda row: str(_at(row, path)))


def _count(title: str, path: str) -> Column:
    return Column(title, lambda row: f"{_at(row, path):,}")


def _value(title: str, path: str, digits: int = 3) -> Column:
    return Column(title, lambda row: _number(_at(row, path), digits))


def _share(title: str, path: str, digits: int = 1) -> Column:
    return Column(title, lambda row: _percent(_at(row, path), digits))


def _median(title: str, path: str, digits: int = 3) -> Column:
    return _value(title, f"{path}.p50", digits)


def _spread(title: str, path: str, digits: int = 3, unit: str = "") -> tuple[Column, Column]:
    """A median, and the 99th percentile or how few samples there are."""

    def high(row: Row) -> str:
        spread = _at(row, path)
        if spread is None or not spread["n"]:
            return _NONE
        return f"n = {spread['n']}" if spread["p99"] is None else _number(spread["p99"], digits)

    shown = f" {unit}" if unit else ""
    return _median(f"{title} p50{shown}", path, digits), Column(f"p99{shown}", high)


# -- MG1 to MG7 ------------------------------------------------------------------


def _kib(row: Row) -> str:
    size = _at(row, "bytes_per_read.p50")
    return _number(None if size is None else size / 1024, 0)


ACCESS = (
    _count("requests", "requests"),
    _count("with remote", "requests_with_remote"),
    _value("chunks each", "chunks_per_request", 1),
    _value("reads/s", "reads_per_s", 1),
    _value("reads per chunk", "reads_per_chunk", 1),
    Column("KiB per read", _kib),
    _median("run, chunks", "run_chunks", 0),
    _share("of the prompt", "remote_share"),
    _share("read before", "read_before"),
    Column("lost", lambda row: f"{sum(row['chunks_lost'].values()):,}"),
)
LOOKUP = (
    *_spread("lookup", "lookup_ms", 4, "ms"),
    _share("of all TTFT", "lookup_share", 2),
    _count("chunks fetched by it", "named"),
    _share("nothing there", "wrong_location_share", 2),
)
NEWS = (
    _count("directory bytes", "messages.directory_bytes"),
    _count("header bytes", "messages.header_bytes"),
    _count("frame bytes", "messages.frame_bytes"),
    _share("per KV byte", "messages.metadata_per_kv_byte_stands_for", 4),
    *_spread("told after", "late_news_ms", unit="ms"),
    *_spread("named when gone", "wrong_for_ms", unit="ms"),
)
COMPLETION = (
    _count("requests", "requests"),
    _value("ends to learn of", "completions_per_request", 1),
    *_spread("completion", "completion_us", unit="µs"),
    _share("of all TTFT", "completion_share", 3),
    _median("verified p50 µs", "verified_us"),
    _median("readable p50 µs", "readable_us"),
)
REUSE = (
    _word("tenant", "tenant"),
    _word("category", "category"),
    _count("chunks", "chunks"),
    _share("reused here", "here.reused_share"),
    *_spread("distance", "here.distance", 0),
    _share("reused anywhere", "anywhere.reused_share"),
    *_spread("distance", "anywhere.distance", 0),
)
STAYS = (
    _word("site", "site"),
    _word("tier", "tier"),
    _word("tenant", "tenant"),
    _word("category", "category"),
    _count("chunks", "chunks"),
    _count("still there", "open"),
    _count("evicted", "evicted"),
    *_spread("stay", "stay_ms", unit="ms"),
)
SLACK = (
    _count("requests", "requests"),
    _median("waited p50 ms", "bring_ms"),
    _median("from arrival ms", "from_arrival.slack_ms"),
    _share("hidden", "from_arrival.hidden_share"),
    _median("from last turn ms", "from_last_turn.slack_ms"),
    _share("hidden", "from_last_turn.hidden_share"),
    _median("from publication ms", "from_publication.slack_ms"),
    _share("hidden", "from_publication.hidden_share"),
)


def _worst(row: Row) -> Row:
    """The tail of a group: its worst hundredth, or its slowest request."""
    tail: Row = row["worst"] if row["worst"]["n"] else row["slowest"]
    return tail


def _excess(row: Row) -> str:
    excess = _worst(row)["excess_ms"]
    return _number(None if excess is None else sum(excess.values()))


def _dominant(row: Row) -> str:
    part = _worst(row)["dominates"]
    return _NONE if part is None else str(part).replace("_", " ")


def _dominant_share(row: Row) -> str:
    tail = _worst(row)
    part = tail["dominates"]
    return _percent(None if part is None else tail["excess_share"][part])


TAIL = (
    _count("n", "ttft_ms.n"),
    _count("no first token", "without_first_token"),
    _value("TTFT p50 ms", "ttft_ms.p50"),
    _value("p95 ms", "ttft_ms.p95"),
    _value("p99 ms", "ttft_ms.p99"),
    _value("slowest ms", "ttft_ms.max"),
    Column(
        "worst", lambda row: f"1 %: {row['worst']['n']}" if row["worst"]["n"] else "slowest one"
    ),
    Column("more than others ms", _excess),
    Column("dominated by", _dominant),
    Column("its share", _dominant_share),
)


def _whence(row: Row) -> str:
    return ", ".join(f"{site} {count:,}" for site, count in row["from"].items()) or _NONE


HITS = (
    _word("site", "site"),
    *(_count(tier, f"tokens.{tier}") for tier in ("device", "dram", "disk", "remote", "computed")),
    Column("remote from", _whence),
)
