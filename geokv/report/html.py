"""``report.html``: one file that shows a run to somebody who has only that file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from geokv.measure.records import CellRecord
from geokv.report import words
from geokv.report.answers import answers
from geokv.report.grid import wide_table
from geokv.report.pivot import pivots


def to_html(summary: dict[str, Any], cells: list[CellRecord], plots: Path) -> str:
    """The page, self-contained: styles and SVG plots inside, no script, nothing fetched."""
    environment = Environment(
        loader=PackageLoader("geokv.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    titles, rows = wide_table(summary)
    return environment.get_template("report.html.j2").render(
        summary=summary,
        header=words.header(summary),
        answers=answers(summary),
        pivots=pivots(summary),
        marks=words.MARKS,
        titles=titles,
        rows=list(zip(summary["cells"], rows, strict=True)),
        links=[(cell, link) for cell in cells for link in cell.links],
        plots=[_inline(path) for path in sorted(plots.glob("*.svg"), reverse=True)],
    )


def _inline(path: Path) -> Markup:
    """Our own SVG without its XML prologue, which HTML does not allow."""
    text = path.read_text(encoding="utf-8")
    return Markup(text[text.index("<svg") :])
