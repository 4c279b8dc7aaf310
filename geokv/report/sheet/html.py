"""Blocks as HTML, and a sheet as one HTML file that needs nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from geokv.report.sheet.blocks import Figure, Sheet, Table
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
        spans_of=_spans,
    )
    return made


def _spans(table: Table) -> list[tuple[str, int]]:
    """Headings with the number of columns each stands over."""
    spans = []
    for group, columns in itertools.groupby(name for name, _ in table.groups):
        count = len(list(columns))
        spans += [(group, count)] if group else [("", 1)] * count
    return spans


def sheet_html(sheet: Sheet) -> str:
    """Styles and drawings inside, no script, nothing fetched."""
    return environment().get_template("sheet/sheet.html.j2").render(sheet=sheet)
