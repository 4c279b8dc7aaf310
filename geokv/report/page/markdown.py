"""``report.md``: the page as GitHub-flavoured Markdown, figures named where they lie."""

from __future__ import annotations

from collections.abc import Sequence

from geokv.report.page.head import Head
from geokv.report.page.section import Section
from geokv.report.sheet.markdown import blocks_markdown, plain


def page_markdown(head: Head, sections: Sequence[Section]) -> str:
    """Everything of the page, in its order."""
    lines = [
        f"# {plain(head.title)}",
        "",
        plain(head.kicker),
        "",
        f"*{plain(head.question)}*",
        "",
        f"**{head.sign} {head.verdict}** — {plain(head.verdict_said)}",
        "",
    ]
    if head.reasons:
        lines += [*(f"- {plain(reason)}" for reason in head.reasons), ""]
    if head.headline:
        lines += [plain(head.headline), ""]
    lines += blocks_markdown([head.cards])
    lines += [*(f"{plain(line)}  " for line in head.facts), ""]
    for section in sections:
        lines += [f"## {plain(section.title)}", "", *blocks_markdown(section.blocks, 3)]
    return "\n".join([*lines, "---", "", plain(head.footer)]) + "\n"
