"""``report.html``: one file that shows a run to somebody who has only that file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geokv.report import drill_words, words
from geokv.report.page.section import Section
from geokv.report.sheet.html import environment


def page_html(summary: dict[str, Any], sections: Sequence[Section]) -> str:
    """The page, self-contained: styles and drawings inside, no script, nothing fetched."""
    header = drill_words.header if summary.get("kind") == "drill" else words.header
    return (
        environment()
        .get_template("page/page.html.j2")
        .render(summary=summary, header=header(summary), sections=sections)
    )
