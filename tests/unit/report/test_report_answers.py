"""Answers over a text, on the terminal, in Markdown and on the page."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from handwritten_document import run
from rich.console import Console

from geokv.report.answers import answers
from geokv.report.console import print_run
from geokv.report.run_folder import write_all


@pytest.fixture
def spoilt(tmp_path: Path) -> Path:
    made = run()
    made.row("remote-hit-2-m1").update({"output_ids": [1], "text": " Tim|buktu "})
    made.row("control-corrupt-0-m0")["text"] = ""
    return made.write(tmp_path)


@pytest.mark.slow
def test_each_answer_says_where_it_was_the_same(spoilt: Path) -> None:
    first, second = answers(write_all(spoilt))
    assert first.ok and first.fetched == "identical at 0, 50, 100, 600 km"
    assert first.controls == [
        "with another text's KV planted: «nonsense»",
        "with one damaged block planted: no word at all",
    ]
    assert not second.ok
    assert second.fetched == "identical at 0, 50, 600 km; DIFFERENT: «Tim|buktu» at 100 km"
    assert second.controls[0].endswith("the same words (its logits are judged below)")


@pytest.mark.slow
def test_every_format_shows_them(spoilt: Path) -> None:
    summary = write_all(spoilt)
    out = io.StringIO()
    print_run(summary, Console(file=out, width=110))
    page = (spoilt / "report.html").read_text(encoding="utf-8")
    table = (spoilt / "table.md").read_text(encoding="utf-8")
    for text in (out.getvalue(), table, page):
        for words in ("How long?", "answer 0", "identical at 0, 50, 100, 600 km", "nonsense"):
            assert words in text
    assert "**identical at 0, 50, 600 km; DIFFERENT: «Tim\\|buktu» at 100 km**" in table
    assert "document text.txt" in out.getvalue()
