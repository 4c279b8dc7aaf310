"""``report.html``: one file that shows a run to somebody who has only that file."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from markupsafe import Markup

from geokv.report.page.head import Head
from geokv.report.page.section import Section
from geokv.report.page.theme import colour_rules, inlined
from geokv.report.sheet.blocks import Figure
from geokv.report.sheet.html import environment


def page_html(head: Head, sections: Sequence[Section]) -> str:
    """The page, self-contained: styles and drawings inside, no script, nothing fetched."""
    numbers = itertools.count(1)

    def drawing(figure: Figure) -> Markup:
        return inlined(figure, f"d{next(numbers)}")

    light, dark, rules = map(Markup, colour_rules())
    template = environment(drawing).get_template("page/page.html.j2")
    return template.render(head=head, sections=sections, light=light, dark=dark, rules=rules)
