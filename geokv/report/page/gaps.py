"""The seven gaps of the survey as a part of a run's page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geokv.report.page.chart import chart
from geokv.report.page.gap_tables import (
    ACCESS,
    COMPLETION,
    HITS,
    LOOKUP,
    NEWS,
    REUSE,
    SLACK,
    STAYS,
    TAIL,
    Column,
    Row,
    gap_table,
)
from geokv.report.page.plot_gaps import draw_attribution, draw_lru
from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Block, Heading, Para

_ABOUT = (
    "What a survey of KV-cache systems found that none of them reports (arXiv 2607.02574), of "
    "this run. Formulas are in docs/measures.md, all figures in summary.json under gaps. n says "
    "how many samples a figure has; a percentile that n does not carry is not shown."
)
_VOID = "No cell of this run counts, so nothing of it is shown as a measurement."


def gaps_section(summary: dict[str, Any], run_dir: Path) -> Section | None:
    """MG1 to MG7, a table each and two figures; of a run of which no cell counts, that it is so.
    None of a run from before there were gaps."""
    if "gaps" not in summary:
        return None
    gaps = counting(summary["gaps"])
    if not gaps["mg7"]["cells"]:
        return Section("gaps", "The seven gaps", [Para(_VOID)])
    blocks: list[Block] = [Para(_ABOUT, quiet=True)]
    blocks += _gap("MG1: remote access pattern", _reading(gaps), ACCESS, _nothing_read(summary))
    blocks += _gap("MG2: metadata", _looking_up(gaps), LOOKUP)
    blocks += gap_table(_told(gaps), NEWS)
    blocks += _gap(
        "MG3: completion", gaps["mg3"]["groups"], COMPLETION,
        "No request had to learn of the end of a transfer.",
    )  # fmt: skip
    blocks += _gap("MG4: reuse distance and residency", _whose(gaps), REUSE)
    blocks += chart(
        lambda: draw_lru(gaps, summary["cells"]), "lru",
        "Share of touched chunks that an LRU cache of a given size would have had",
        "Of what this run touched: what an LRU cache of that size would have had, one at each site "
        "and one for all.",
    )  # fmt: skip
    blocks += gap_table(_stays(gaps), STAYS)
    blocks += _gap(
        "MG5: prefetch slack", gaps["mg5"]["groups"], SLACK,
        "No request waited for cached KV from below the device.",
    )  # fmt: skip
    blocks += _gap("MG6: what the tail is made of", gaps["mg6"]["groups"], TAIL)
    blocks += chart(
        lambda: draw_attribution(gaps, summary["cells"]), "attribution",
        "Parts of the time to first token of a median request and of the tail",
        "Median request above, tail below: the mean of the worst 1 % where there are 100 requests, "
        "else the slowest.",
    )  # fmt: skip
    blocks += _gap("MG7: replayable trace", _hits(gaps), HITS)
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


def _gap(title: str, rows: Sequence[Row], columns: Sequence[Column], none: str = "") -> list[Block]:
    blocks = gap_table(rows, columns)
    if not blocks and none:
        blocks = [Para(none)]
    return [Heading(title, 3), *blocks] if blocks else []


# -- rows ------------------------------------------------------------------------


def _reading(gaps: Row) -> list[Row]:
    return [row for row in gaps["mg1"]["groups"] if row["chunks_read"] or row["chunks_lost"]]


def _looking_up(gaps: Row) -> list[Row]:
    return [row for row in gaps["mg2"]["groups"] if row["named"] or row["lookup_share"]]


def _told(gaps: Row) -> list[Row]:
    return [row for row in gaps["mg2"]["cells"] if row["messages"]]


def _whose(gaps: Row) -> list[Row]:
    return [
        {"label": row["label"], "group": row["group"], **one}
        for row in gaps["mg4"]["groups"]
        for one in row["by"]
    ]


def _stays(gaps: Row) -> list[Row]:
    return [
        {"label": row["label"], **one}
        for row in gaps["mg4"]["cells"]
        for one in row["residency"] or ()
    ]


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
