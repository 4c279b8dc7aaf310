"""Blocks as HTML, and a sheet as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from geokv.report.sheet.blocks import Figure, Sheet
from geokv.report.sheet.shown import mark_of
from geokv.report.sheet.svg import FONTS

_CLASSES = {True: "ok", False: "bad", None: "open"}


def as_drawn(figure: Figure) -> Markup:
    """Our own SVG without its XML prologue, which HTML does not allow."""
    return Markup(figure.svg[figure.svg.index("<svg") :])


def environment(drawing: Callable[[Figure], Markup] = as_drawn) -> Environment:
    """Templates of this room, with what ``sheet/blocks.html.j2`` needs to render blocks.

    Args:
        drawing: how an SVG is put into the page.
    """
    made = Environment(
        loader=PackageLoader("geokv.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(
        fonts=Markup(FONTS),
        kind_of=lambda block: type(block).__name__,
        mark_of=mark_of,
        class_of=lambda mark: _CLASSES.get(mark, ""),
        drawing=drawing,
    )
    return made


def sheet_html(sheet: Sheet) -> str:
    """Styles and drawings inside, no script, nothing fetched."""
    return environment().get_template("sheet/sheet.html.j2").render(sheet=sheet)
