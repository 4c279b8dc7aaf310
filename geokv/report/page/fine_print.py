"""Constants of the energy proxy, and what a reader should know before quoting a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Block, Bullets, Heading, Table


def notes_section(summary: dict[str, Any], run_dir: Path) -> Section | None:
    """What must be known to read the numbers, and every constant with its source."""
    blocks: list[Block] = [Bullets(summary["notes"])] if summary["notes"] else []
    constants = summary.get("energy", {}).get("constants", {})
    if constants:
        rows = [
            [name, f"{data['value']:g}", f"{data['low']:g}–{data['high']:g}", data["source"]]
            for name, data in constants.items()
        ]
        head = ["constant", "value", "range", "source"]
        blocks += [Heading("Constants of the energy proxy", 3), Table(head, rows)]
    return Section("notes", "Notes", blocks) if blocks else None
