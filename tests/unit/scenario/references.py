"""Reference tables, and figures of the docs that are to be theirs."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]

Row = dict[str, str]


def rows_of(name: str, **settings: object) -> list[Row]:
    """Of a reference table, those with these values in these columns."""
    with (CHECKOUT / "results" / "reference" / name / "table.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return [row for row in rows if all(row[key] == str(settings[key]) for key in settings)]


def row_of(name: str, **settings: object) -> Row:
    """The one of them that there is."""
    (row,) = rows_of(name, **settings)
    return row


def is_shown(shown: str, want: float | str) -> None:
    """It is the figure of the reference, to the digits that are shown; a unit may follow."""
    (number,) = re.findall(r"[+-]?[\d,]*\.?\d+", shown.replace("−", "-"))
    digits = len(number.partition(".")[2])
    assert float(number.replace(",", "")) == pytest.approx(float(want), abs=0.5001 * 10**-digits), (
        shown
    )
