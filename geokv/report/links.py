"""``links.json``: every self-check of every link, asked beside measured."""

from __future__ import annotations

import json

import msgspec

from geokv.measure.records import CellRecord


def to_links(cells: list[CellRecord]) -> str:
    """JSON text: per cell the planned path and each check, integers as recorded."""
    rows = [
        {
            "cell": cell.cell,
            "settings": cell.settings,
            "out_of_range": cell.out_of_range,
            "path": msgspec.to_builtins(cell.path),
            "links": msgspec.to_builtins(cell.links),
        }
        for cell in cells
    ]
    return json.dumps({"cells": rows}, indent=2, ensure_ascii=False) + "\n"
