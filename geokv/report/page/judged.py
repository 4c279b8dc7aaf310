"""What the verdict stands on: every judged line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Block, Bullets, Heading, Table


def judged_section(summary: dict[str, Any], run_dir: Path) -> Section:
    lines = summary["expectations"]
    rows = [[one["name"], one["said"]] for one in lines]
    blocks: list[Block] = [Table(["line", "what was seen"], rows, [one["ok"] for one in lines])]
    if summary["warnings"]:
        blocks += [Heading("Warnings", 3), Bullets(summary["warnings"])]
    return Section("judged", "What the verdict stands on", blocks)
