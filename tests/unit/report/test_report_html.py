"""The page: whole, self-contained, named for who cannot see it, and safe to open."""

from __future__ import annotations

import copy
import itertools
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import handwritten_drill
import pytest
from handwritten import Run

from geokv.measure.records import load_cells
from geokv.report.outputs import write_outputs
from geokv.report.page.content import sections
from geokv.report.page.head import head
from geokv.report.page.html import page_html
from geokv.report.page.theme import DARK
from geokv.report.run_folder import write_all

VOID = {"meta", "br", "img", "link", "input", "hr"}
RUN = [
    "results", "figures", "judged", "statistics", "energy", "gaps", "links", "setup", "honesty",
    "reproduce", "notes", "files",
]  # fmt: skip
DRILL = [
    "results", "timeline", "judged", "control", "statistics", "gaps", "links", "setup", "honesty",
    "reproduce", "notes", "files",
]  # fmt: skip


@dataclass
class Outline(HTMLParser):
    """Every tag with its attributes, what refers elsewhere, and text by the tag around it."""

    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    crossed: list[str] = field(default_factory=list)
    text: str = ""
    headings: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append((tag, ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.crossed.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and re.fullmatch(r"h[1-6]", self.open[-1]):
            level, said = self.headings[-1]
            self.headings[-1] = (level, said + data)

    def all(self, *names: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.tags if tag in names]


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    found.close()
    return found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The run folders of a measurement and of a drill, reported on."""
    folders = {
        "run": Run().write(tmp_path_factory.mktemp("run")),
        "drill": handwritten_drill.Drill().write(tmp_path_factory.mktemp("drill")),
    }
    for folder in folders.values():
        write_all(folder)
    return folders


def read(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("kind", "ids"), [("run", RUN), ("drill", DRILL)])
def test_the_page_has_every_section_in_order_with_a_heading_and_a_link(
    pages: dict[str, Path], kind: str, ids: list[str]
) -> None:
    page = outline(read(pages[kind]))
    assert not page.crossed and not page.open, "tags that close nothing, or are never closed"
    assert [one["id"] for one in page.all("section")] == ids
    here = [one["href"].removeprefix("#") for one in page.all("a") if one["href"][0] == "#"]
    assert here[1:] == ids
    assert [level for level, _ in page.headings].count("h1") == 1
    assert [level for level, _ in page.headings].count("h2") == len(ids)
    levels = [int(level[1]) for level, _ in page.headings]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert all(said.strip() for _, said in page.headings)


@pytest.mark.parametrize("kind", ["run", "drill"])
def test_ids_are_unique_and_all_that_refers_to_them_finds_them(
    pages: dict[str, Path], kind: str
) -> None:
    text = read(pages[kind])
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    used = re.findall(r'(?:url\(#|href="#)([^")]+)', text)
    used += [name for value in re.findall(r'aria-labelledby="([^"]+)"', text) for name in [value]]
    assert used and set(used) <= set(ids)


@pytest.mark.parametrize("kind", ["run", "drill"])
def test_every_figure_has_a_name_and_lies_in_the_folder_too(
    pages: dict[str, Path], kind: str
) -> None:
    page = outline(read(pages[kind]))
    drawn = page.all("svg")
    assert drawn and all(one["role"] == "img" and len(one["aria-label"]) > 10 for one in drawn)
    assert not page.all("img")
    files = list((pages[kind] / "plots").glob("*.svg"))
    assert len([path for path in files if not path.name.endswith(".ja.svg")]) == len(drawn)
    assert page.all("text"), "words of a figure are text"


@pytest.mark.parametrize("kind", ["run", "drill"])
def test_tables_say_what_their_columns_are(pages: dict[str, Path], kind: str) -> None:
    page = outline(read(pages[kind]))
    assert page.all("th") and all(
        one.get("scope") in {"col", "row", "colgroup"} for one in page.all("th")
    )


@pytest.mark.parametrize("kind", ["run", "drill"])
def test_page_fetches_nothing_and_runs_nothing(pages: dict[str, Path], kind: str) -> None:
    folder = pages[kind]
    text = read(folder)
    page = outline(text)
    assert "http:" not in text and "https:" not in text, "no address at all"
    assert not page.all("script", "link", "iframe", "object", "embed")
    assert not [name for _, attributes in page.tags for name in attributes if name[:2] == "on"]
    assert not re.search(r"url\((?!#)|@import|javascript:", text)
    for one in page.tags:
        for name in ("src", "href"):
            target = one[1].get(name, "#")
            assert target.startswith("#") or (folder / target).is_file(), target


def test_the_run_is_all_on_its_page(pages: dict[str, Path]) -> None:
    folder = pages["run"]
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    page = outline(read(folder))
    for item in summary["expectations"]:
        assert item["name"] in page.text and item["said"] in page.text
    for cell in load_cells(folder):
        for link in cell.links:
            assert f"{(link.rtt_measured_ns or 0) / 1e6:.3f}" in page.text
    for name in summary["energy"]["constants"]:
        assert name in page.text
    assert "pass" in page.text and "Everything that this run was to show holds." in page.text
    said = "At 100 km a remote hit takes 98.90\u00a0ms to the first token, 80.3 % less than"
    assert said in page.text
    assert "geokv-tiny in torch" in page.text and "S = 4" in page.text


def test_the_drill_is_all_on_its_page(pages: dict[str, Path]) -> None:
    page = outline(read(pages["drill"]))
    for said in ("cut: a right answer within 150 ms of healing", "never answered", "misses"):
        assert said in page.text
    assert "60 of 60 requests were answered, none of them wrongly" in page.text
    assert "cut from 1003 ms to 1504 ms" in page.all("svg")[0]["aria-label"]
    assert {one["href"] for one in page.all("a")} >= {"sheet.en.html", "requests.parquet"}


def test_every_colour_of_a_drawing_has_a_twin_on_a_dark_ground(pages: dict[str, Path]) -> None:
    for kind in pages:
        for drawing in re.findall(r"<svg .*?</svg>", read(pages[kind]), re.DOTALL):
            colours = set(re.findall(r"(?:fill|stroke)[:=]\"?\s?(#[0-9a-f]{6})", drawing))
            assert colours <= DARK.keys(), colours - DARK.keys()


def test_words_of_the_user_are_text_and_never_markup(run_dir: Path) -> None:
    summary = json.loads(json.dumps(write_all(run_dir)))
    summary["scenario"]["title"] = "<script>alert(1)</script>"
    page = outline(page_html(head(summary), sections(summary, run_dir)))
    assert not page.all("script")
    assert "<script>alert(1)</script>" in page.text


def test_a_void_cell_shows_no_number_and_no_sentence(tmp_path: Path) -> None:
    run = Run()
    for record in run.cells:
        record["links"].pop()
    run.write(tmp_path)
    (tmp_path / "plots").mkdir()
    left = '<svg><script>alert("from before")</script></svg>'
    (tmp_path / "plots" / "ttft_vs_km.svg").write_text(left)
    write_all(tmp_path)
    assert "from before" not in read(tmp_path)
    page = outline(read(tmp_path))
    assert "invalid" in page.text and "void" in page.text
    assert "At 100 km a remote hit" not in page.text
    assert "98.90" not in page.text
    drawn = {path.name for path in (tmp_path / "plots").iterdir()}
    assert drawn == {"topology.svg", "link_check.svg"}


def test_a_drill_s_sentence_passes_over_nothing_that_was_not_seen(tmp_path: Path) -> None:
    run_dir = handwritten_drill.Drill().write(tmp_path)
    summary = write_outputs(run_dir, ["csv"])
    (fault,) = summary["cells"][0]["faults"]
    noticed, back = fault["recovery"]["detected"]["ms"], fault["recovery"]["ttft_back"]["ms"]
    whole = head(summary).headline
    assert f"; sites noticed within {noticed:.2f}\u00a0ms; hits and times were as before" in whole
    other = copy.deepcopy(fault)
    other["recovery"]["detected"]["ms"] = other["recovery"]["hit_rate_back"]["ms"] = None
    other["recovery"]["ttft_back"]["ms"] = back + 5000
    summary["cells"][0]["faults"].append(other)
    said = head(summary).headline
    assert f"noticed 1 of 2 faults within {noticed:.2f}\u00a0ms" in said
    assert "as before after 1 of 2 faults within" in said
    assert whole.rsplit("within", 1)[1] == said.rsplit("within", 1)[1]
