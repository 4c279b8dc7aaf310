"""Every check of every link, asked beside measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from geokv.report import words
from geokv.report.page import plot_links
from geokv.report.page.chart import chart
from geokv.report.page.section import Section
from geokv.report.plot_panels import single_axis
from geokv.report.sheet.blocks import Block, Bullets, Fold, Para, Table

_TITLE = "Links, asked and measured"
_HEAD = [
    "cell", "link", "when", "RTT asked ms", "RTT measured ms", "goodput asked Gb/s",
    "goodput measured Gb/s", "dropped", "ok",
]  # fmt: skip
_FOLD_FROM = 12


def links_section(summary: dict[str, Any], run_dir: Path) -> Section | None:
    """None where no link was checked."""
    cells = json.loads((run_dir / "links.json").read_bytes())["cells"]
    names = _names(summary)
    checks = [
        (names.get(cell["cell"], str(cell["cell"])), cell["cell"], link)
        for cell in cells
        for link in cell["links"]
    ]
    if not checks:
        return None
    off = [link for _, _, link in checks if not link["ok"]]
    said = (
        f"{len(checks) - len(off)} of {len(checks)} checks are within tolerance. A link off its "
        "plan voids the run: its numbers are then never shown. Rates are those on the wire, "
        f"divided by S = {summary['ran']['byte_scale']}."
    )
    blocks: list[Block] = [Para(said)]
    if problems := [problem for link in off for problem in link["problems"]]:
        blocks.append(Bullets(problems))
    # What a run of an older geokv did not keep beside the measurement cannot be drawn.
    planned = [_check(*one) for one in checks if one[2]["rtt_asked_ns"] is not None]
    blocks += chart(
        lambda: plot_links.draw(summary, planned, _TITLE),
        "link_check",
        "How far round trips and goodput of every link were from the plan, with what is allowed.",
    )
    rows = [_row(name, link) for name, _, link in checks]
    tones = ["" if link["ok"] else "bad" for _, _, link in checks]
    table = Table(_HEAD, rows, numbers=True, tones=tones)
    blocks.append(Fold(f"All {len(checks)} checks", [table]) if len(checks) > _FOLD_FROM else table)
    return Section("links", _TITLE, blocks)


def _names(summary: dict[str, Any]) -> dict[int, str]:
    """Cell → what an axis calls it: its km where that is all that changes."""
    drill = summary.get("kind") == "drill"
    if not drill and single_axis(summary):
        # With several seeds a row of the table stands for a cell of each.
        return {
            one["cell"]: f"{cell['km']:g}"
            for cell in summary["cells"]
            for one in cell.get("by_seed", [cell])
        }
    if drill and not summary["ran"]["swept"]:
        return {cell["cell"]: cell["label"] or "as written" for cell in summary["cells"]}
    return {cell["cell"]: str(cell["cell"]) for cell in summary["cells"]}


def _check(name: str, cell: int, link: dict[str, Any]) -> plot_links.Check:
    return plot_links.Check(
        place=cell,
        cell=name,
        link=link["link"],
        phase=link["phase"],
        ok=link["ok"],
        rtt_expected_ns=link.get("rtt_expected_ns") or link["rtt_asked_ns"],
        rtt_measured_ns=link["rtt_measured_ns"],
        goodput_asked_bps=link["goodput_asked_bps"],
        goodput_measured_bps=link["goodput_measured_bps"],
    )


def _row(name: str, link: dict[str, Any]) -> list[str]:
    return [
        name,
        link["link"],
        link["phase"],
        _scaled(link["rtt_asked_ns"], 1e6),
        _scaled(link["rtt_measured_ns"], 1e6),
        _scaled(link["goodput_asked_bps"], 1e9),
        _scaled(link["goodput_measured_bps"], 1e9),
        words.NONE if link["drops"] is None else str(link["drops"]),
        "yes" if link["ok"] else "no",
    ]


def _scaled(value: float | None, unit: float) -> str:
    return words.NONE if value is None else f"{value / unit:.3f}"
