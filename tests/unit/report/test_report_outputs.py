"""Outputs of a finished run, made again one format at a time."""

from __future__ import annotations

import copy
import io
import json
import re
from html import escape, unescape
from pathlib import Path
from typing import Any

import handwritten
import handwritten_drill
import pyarrow.parquet as pq
import pytest
from handwritten import Run
from matplotlib.figure import Figure
from rich.console import Console

from geokv.measure.checker.history import load_histories
from geokv.measure.drill.fates import REQUEST_FATES
from geokv.measure.drill.story import stories
from geokv.report.console import print_run
from geokv.report.outputs import FORMATS, Format, write_outputs
from geokv.report.page.head import head
from geokv.report.page.markdown import page_markdown
from geokv.report.run_folder import read_summary, write_all
from geokv.report.sheet.content import compose
from geokv.report.sheet.markdown import sheet_markdown
from geokv.report.sheet.words import words_of
from geokv.report.style import save
from geokv.report.words import VERDICT_SIGNS
from geokv.scenario import read_back

OF_FORMAT = {
    "html": {"report.html"},
    "md": {"report.md", "table.md"},
    "csv": {"table.csv"},
    "parquet": {"requests.parquet"},
    "latex": {"table.tex"},
}


@pytest.fixture(params=["run", "drill"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made: Path = (Run() if request.param == "run" else handwritten_drill.Drill()).write(tmp_path)
    return made


@pytest.mark.parametrize("one", FORMATS)
def test_a_format_writes_its_files_and_no_other_s(folder: Path, one: Format) -> None:
    write_outputs(folder, [one])
    there = {path.name for path in folder.iterdir()}
    for other, files in OF_FORMAT.items():
        assert (files <= there) == (other == one), other
    assert "summary.json" in there


def test_twice_gives_the_same_bytes(folder: Path) -> None:
    def files() -> dict[str, bytes]:
        found = (path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}

    write_outputs(folder)
    first = files()
    assert first.keys() >= {name for names in OF_FORMAT.values() for name in names}
    write_outputs(folder)
    assert files() == first


def test_the_page_as_markdown_has_what_the_page_has(folder: Path) -> None:
    write_outputs(folder)
    text = (folder / "report.md").read_text(encoding="utf-8")
    for title in (
        "## Results",
        "## What the verdict stands on",
        "## How far to trust",
        "**✓ pass**",
    ):
        assert title in text
    for line in text.splitlines():
        if line.startswith("!["):
            assert (folder / line[line.rindex("(") + 1 : -1]).is_file()


SIGNS = r"$5 & 50 % of <a_b> *c* `d` \frac{x} $\frac{1}{"
"""What is mark-up or a formula somewhere, and in LaTeX an unfinished one."""


@pytest.mark.parametrize("kind", ["run", "drill"])
def test_signs_in_titles_are_signs_everywhere(tmp_path: Path, kind: str) -> None:
    """Written by a user, shown as written: nowhere a formula, emphasis or a tag."""
    base = handwritten.SCENARIO if kind == "run" else handwritten_drill.SCENARIO
    data = copy.deepcopy(base) | {"title": SIGNS, "question": SIGNS}
    data["topology"]["title"] = SIGNS
    for site in data["topology"]["sites"]:
        data["topology"]["sites"][site] = {"title": SIGNS}
    energy: dict[str, Any] = {"carbon_intensity_g_per_kwh": 200, "source": SIGNS}
    if kind == "run":
        data["energy"] = {"sites": {site: energy for site in data["topology"]["sites"]}}
        data["figures"] = [
            {"kind": "lines", "name": "f", "title": SIGNS, "x": "links.a-b.km", "of": "ttft"}
        ]
    run = Run(data) if kind == "run" else handwritten_drill.Drill(data)
    folder = run.write(tmp_path)
    write_all(folder)
    assert escape(SIGNS) in (folder / "report.html").read_text()
    assert not re.search(r"<a_b>|<em>c|<code>d", (folder / "report.html").read_text())
    escaped = r"$5 & 50 % of \<a\_b> \*c\* \`d\` \\frac{x} $\\frac{1}{"
    for name in ("table.md", "report.md"):
        assert f"# {escaped}\n" in (folder / name).read_text(), name
    latex = (folder / "table.tex").read_text()
    assert r"\$5 \& 50\,\% of" in latex and r"\$\textbackslash{}frac" in latex
    if kind == "run":
        assert SIGNS[:20] in unescape((folder / "plots" / "ttft_vs_km.svg").read_text())
        assert SIGNS in unescape((folder / "plots" / "f.svg").read_text())


@pytest.mark.parametrize("verdict", ["pass", "fail", "invalid", "unknown"])
def test_a_verdict_has_one_mark(tmp_path: Path, verdict: str) -> None:
    """On the page, in its Markdown and in the sheet."""
    folder = handwritten_drill.Drill().write(tmp_path)
    write_all(folder)
    summary = read_summary(folder) | {"verdict": verdict}
    scenario = read_back(folder / "scenario.yaml")
    sheet = sheet_markdown(compose(summary, scenario, stories(folder), words_of("en")))
    top = head(summary)
    assert f"**{top.sign} " in sheet and f"**{top.sign} " in page_markdown(top, [])
    assert top.sign == VERDICT_SIGNS[verdict]


def test_a_drawing_that_fails_leaves_no_half_file(tmp_path: Path) -> None:
    """An unfinished formula is one way to fail while the file is being written."""
    figure = Figure()
    figure.text(0.5, 0.5, r"$\frac{1}{$", parse_math=True)
    for kind in ("svg", "png"):
        with pytest.raises(ValueError, match="frac"):
            save(figure, tmp_path / f"one.{kind}")
    assert list(tmp_path.iterdir()) == []


def test_requests_of_a_drill_have_their_fate_and_their_spans(tmp_path: Path) -> None:
    run_dir = handwritten_drill.Drill().write(tmp_path)
    summary = write_outputs(run_dir, ["parquet"])
    rows = pq.read_table(run_dir / "requests.parquet").to_pylist()
    for cell in summary["cells"]:
        here = [row for row in rows if row["cell"] == cell["cell"]]
        assert {row["control"] for row in here} == {cell["control"]}
        counts = {fate: sum(row["fate"] == fate for row in here) for fate in REQUEST_FATES}
        assert counts == cell["fates"]["requests"]
    histories = {history.cell or 0: history for history in load_histories(run_dir)}
    row = next(row for row in rows if row["cell"] == 0 and row["request_id"] == "r3")
    (asked,) = [e for e in histories[0].of("request") if e["request_id"] == "r3"]
    (answer,) = [e for e in histories[0].of("answer") if e["request_id"] == "r3"]
    assert row["sent_ns"] == asked["t_ns"]
    assert row["ttft_ns"] == answer["ttft_ns"] and row["status"] == "ok"


@pytest.mark.parametrize("toothless", [False, True], ids=["fails", "does not fail"])
def test_every_table_says_of_the_control_whether_it_failed(tmp_path: Path, toothless: bool) -> None:
    """Its lines are broken on purpose: it neither passes nor fails."""
    drill = handwritten_drill.Drill()
    if toothless:
        for event in drill.of("use", cell=1):
            event["checksums"] = ["aa", "bb"]
    run_dir = drill.write(tmp_path)
    write_all(run_dir)
    word, other = ("did not fail", "fails as it must")[:: 1 if toothless else -1]
    japanese = "失敗せず" if toothless else "期待どおり失敗"
    rows = {
        "table.csv": f"control,yes,{word},",
        "table.md": f"| control | {word} |",
        "table.tex": f"control & {word} &",
        "report.md": f"| control | {word} |",
        "report.html": f"<td>control</td><td>{word}</td>",
        "sheet.en.html": f"<span>control</span><b>{word}</b>",
        "sheet.ja.html": f"<span>対照</span><b>{japanese}</b>",
        "sheet.en.md": f"![A drill written by hand: control: {word}]",
        "sheet.ja.md": f": 対照: {japanese}]",
    }
    for name, row in rows.items():
        text = (run_dir / name).read_text(encoding="utf-8")
        assert row in re.sub(r' (class|scope)="[^"]*"', "", text), name
        assert f"control | {other}" not in text and f"control & {other}" not in text
    console = Console(width=160, record=True, file=io.StringIO())
    print_run(read_summary(run_dir), console)
    assert re.search(rf"^ *control +{word} +60 ", console.export_text(), re.MULTILINE)


def test_columns_that_both_kinds_of_runs_have_are_of_one_type(tmp_path: Path) -> None:
    schemas = []
    for kind in (handwritten_drill.Drill(), Run()):
        folder = tmp_path / type(kind).__name__
        folder.mkdir()
        run_dir = kind.write(folder)
        write_outputs(run_dir, ["parquet"])
        schemas.append(pq.read_schema(run_dir / "requests.parquet"))
    drill, measured = schemas
    shared = set(drill.names) & set(measured.names)
    assert {name: drill.field(name).type for name in shared} == {
        name: measured.field(name).type for name in shared
    }
    assert set(drill.names) - shared == {
        *("control", "door", "prompt", "prefix", "probe", "due_ns", "deadline_ns", "fate"),
    }
    assert {"ttft_ns", "source", "settings", "queue_ns"} <= shared


def test_a_request_without_an_answer_is_unanswered(tmp_path: Path) -> None:
    drill = handwritten_drill.Drill()
    run_dir = drill.write(tmp_path)
    path = run_dir / "records" / "history-0-coordinator.jsonl"
    kept = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if not ('"answer"' in line and json.loads(line).get("request_id") == "r3")
    ]
    path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    write_outputs(run_dir, ["parquet", "html"])
    rows = pq.read_table(run_dir / "requests.parquet").to_pylist()
    (row,) = [row for row in rows if row["cell"] == 0 and row["request_id"] == "r3"]
    assert (row["status"], row["fate"]) == ("unanswered", "unanswered")
    assert row["ttft_ns"] is None and row["first_ns"] is None
    assert "never answered (1)" in (run_dir / "report.html").read_text(encoding="utf-8")


def test_links_of_a_drill_are_kept_as_of_a_measurement(tmp_path: Path) -> None:
    run_dir = handwritten_drill.Drill().write(tmp_path)
    write_outputs(run_dir, ["html"])
    cells = json.loads((run_dir / "links.json").read_text())["cells"]
    assert [cell["cell"] for cell in cells] == [0, 1]
    checks = [(one["link"], one["phase"], one["ok"]) for one in cells[0]["links"]]
    assert checks == [("a-b", "before", True), ("a-b", "after", True)]
