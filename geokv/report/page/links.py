"""Every check of every link, asked beside measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from geokv.report import words
from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Table

_HEAD = [
    "cell", "link", "when", "RTT asked ms", "RTT measured ms", "goodput asked Gb/s",
    "goodput measured Gb/s", "dropped", "ok",
]  # fmt: skip


def links_section(summary: dict[str, Any], run_dir: Path) -> Section | None:
    path = run_dir / "links.json"
    if not path.is_file():
        return None
    cells = json.loads(path.read_bytes())["cells"]
    checks = [(cell["cell"], link) for cell in cells for link in cell["links"]]
    rows = [_row(cell, link) for cell, link in checks]
    tones = ["" if link["ok"] else "bad" for _, link in checks]
    return Section(
        "links", "Links, asked and measured", [Table(_HEAD, rows, numbers=True, tones=tones)]
    )


def _row(cell: int, link: dict[str, Any]) -> list[str]:
    return [
        str(cell),
        link["link"],
        link["phase"],
        _scaled(link["rtt_asked_ns"], 1e6),
        _scaled(link["rtt_measured_ns"], 1e6),
        _scaled(link["goodput_asked_bps"], 1e9),
        _scaled(link["goodput_measured_bps"], 1e9),
        str(link["drops"]),
        "yes" if link["ok"] else "no",
    ]


def _scaled(value: float | None, unit: float) -> str:
    return words.NONE if value is None else f"{value / unit:.3f}"
