"""The page: whole, self-contained and safe to open."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

from geokv.measure.records import load_cells
from geokv.report.page.content import sections
from geokv.report.page.html import page_html
from geokv.report.run_folder import write_all


class Outline(HTMLParser):
    """Open and closed tags, and everything that refers elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in {"src", "href", "xlink:href"} and value and not value.startswith("#"):
                self.references.append(value)

    def handle_data(self, data: str) -> None:
        self.text += data


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    return found


def test_page_holds_table_plots_links_and_expectations(run_dir: Path) -> None:
    summary = write_all(run_dir)
    page = outline((run_dir / "report.html").read_text(encoding="utf-8"))
    assert page.tags.count("svg") == len(list((run_dir / "plots").glob("*.svg")))
    rows = len(summary["cells"]) + len(summary["expectations"])
    rows += sum(len(cell.links) for cell in load_cells(run_dir))
    rows += len(summary["energy"]["constants"])
    headings = 4
    assert page.tags.count("tr") == rows + headings
    for item in summary["expectations"]:
        assert item["name"] in page.text


def test_page_fetches_nothing_and_runs_nothing(run_dir: Path) -> None:
    write_all(run_dir)
    text = (run_dir / "report.html").read_text(encoding="utf-8")
    page = outline(text)
    assert page.references == []
    assert "script" not in page.tags
    assert not re.search(r"url\((?!#)|@import", text)


def test_words_of_the_user_are_text_and_never_markup(run_dir: Path) -> None:
    summary = json.loads(json.dumps(write_all(run_dir)))
    summary["scenario"]["title"] = "<script>alert(1)</script>"
    page = outline(page_html(summary, sections(summary, run_dir)))
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.text
