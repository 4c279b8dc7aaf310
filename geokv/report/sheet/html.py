"""A sheet as one HTML file that needs nothing else."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from geokv.report.sheet.blocks import Sheet
from geokv.report.sheet.shown import mark_of
from geokv.report.sheet.svg import FONTS

_CLASSES = {True: "ok", False: "bad", None: "open"}


def sheet_html(sheet: Sheet) -> str:
    """Styles and drawings inside, no script, nothing fetched."""
    environment = Environment(
        loader=PackageLoader("geokv.report.sheet", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    blocks = [(type(block).__name__, block) for block in sheet.blocks]
    return environment.get_template("sheet.html.j2").render(
        sheet=sheet,
        blocks=blocks,
        fonts=Markup(FONTS),
        mark_of=mark_of,
        class_of=lambda mark: _CLASSES.get(mark, ""),
        inline=Markup,
    )
