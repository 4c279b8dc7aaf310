"""What notebooks show: small tables in the notebook's own style, light or dark."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

_MARKS = {"pass": "✓", "fail": "✗", "invalid": "∅", "unknown": "?"}
_LEFT = ' style="text-align:left"'


def page(title: str, question: str, *parts: str) -> str:
    """A heading, a sentence, and what follows them; ``parts`` are HTML."""
    head = f"<strong>{escape(title)}</strong><br><em>{escape(question)}</em>"
    return f"<div>{head}{''.join(parts)}</div>"


def facts(rows: Mapping[str, str]) -> str:
    """Two columns: what, and its value."""
    lines = [
        f"<tr><th{_LEFT}>{escape(name)}</th><td{_LEFT}>{escape(value)}</td></tr>"
        for name, value in rows.items()
    ]
    return f"<table>{''.join(lines)}</table>"


def verdict(word: str, reasons: list[str]) -> str:
    """The verdict and why; said in words and by a mark, not by colour."""
    because = "".join(f"<li>{escape(reason)}</li>" for reason in reasons)
    return f"<p>{_MARKS.get(word, '')} verdict: <strong>{escape(word)}</strong></p>" + (
        f"<ul>{because}</ul>" if because else ""
    )
