"""The LaTeX table: balanced, as wide as it says, and nothing recorded becomes a command."""

from __future__ import annotations

import re
from pathlib import Path

import handwritten_drill
import pytest
from handwritten import Run
from test_report_sweeps import swept

from geokv.measure import summarise
from geokv.report.grid import wide_table
from geokv.report.latex import tex, to_latex
from geokv.report.outputs import write_outputs

SHAPES = ["run", "drill", "sweep"]


@pytest.fixture(scope="module", params=SHAPES)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp(request.param)
    made = {
        "run": lambda: Run().write(folder),
        "drill": lambda: handwritten_drill.Drill().write(folder),
        "sweep": lambda: Run(swept()).write(folder),
    }[request.param]()
    write_outputs(made, ["latex"])
    return (made / "table.tex").read_text(encoding="utf-8")


def body(table: str) -> list[str]:
    return table[table.index(r"\toprule") : table.index(r"\bottomrule")].splitlines()


def test_environments_and_braces_are_balanced(table: str) -> None:
    begun = re.findall(r"\\begin\{(\w+)\}", table)
    assert begun == ["table", "tabular"]
    assert re.findall(r"\\end\{(\w+)\}", table) == begun[::-1]
    bare = re.sub(r"\\[{}]", "", re.sub(r"(?<!\\)%.*", "", table))
    depth = 0
    for sign in bare:
        depth += {"{": 1, "}": -1}.get(sign, 0)
        assert depth >= 0
    assert depth == 0
    assert all(table.count(rule) == 1 for rule in (r"\toprule", r"\midrule", r"\bottomrule"))


def test_every_row_fills_the_columns(table: str) -> None:
    found = re.search(r"\\begin\{tabular\}\{@\{\}([lr]+)@\{\}\}", table)
    assert found is not None
    rows = [line for line in body(table) if line.endswith(r" \\")]
    assert len(rows) >= 4
    for row in rows:
        cells = re.split(r"(?<!\\)&", row)
        spans = [re.search(r"\\multicolumn\{(\d+)\}", cell) for cell in cells]
        assert sum(int(span[1]) if span else 1 for span in spans) == len(found[1])


def test_rules_stand_under_their_headings(table: str) -> None:
    """Each ``\\cmidrule`` covers just the columns of its ``\\multicolumn``."""
    heads = next((line for line in body(table) if r"\multicolumn" in line), "")
    at, expected = 1, []
    for cell in re.split(r"(?<!\\)&", heads):
        span = re.search(r"\\multicolumn\{(\d+)\}", cell)
        if span:
            expected.append((at, at + int(span[1]) - 1))
        at += int(span[1]) if span else 1
    rules = re.findall(r"\\cmidrule\(lr\)\{(\d+)-(\d+)\}", table)
    assert [(int(low), int(high)) for low, high in rules] == expected


def test_numbers_are_those_of_the_run(run_dir: Path) -> None:
    """In their columns, or in the caption where every row has the same."""
    summary = write_outputs(run_dir, ["latex"])
    table = (run_dir / "table.tex").read_text(encoding="utf-8")
    lines = [line for line in body(table) if line.endswith(r" \\")][-len(summary["cells"]) :]
    rows = [
        [re.sub(r"\\textit\{(.*)\}$", r"\1", one) for one in line[:-3].split(" & ")]
        for line in lines
    ]
    titles, wide = wide_table(summary)
    caption = re.search(r"In every row: (.*?)\. In italics", table)
    assert caption is not None
    alike = caption[1].split(", ")
    assert alike == ["goodput ratio 0.980", "wrong 0/6", "GiB moved 1.00", "valid yes"]
    columns = list(zip(*rows, strict=True))
    for title, texts in zip(titles, zip(*wide, strict=True), strict=True):
        shown = tuple(tex(text.removesuffix(" *")) for text in texts)
        if f"{title} {texts[0]}" in alike:
            assert len(set(shown)) == 1
        else:
            assert columns.pop(0) == shown
    assert not columns
    rows = lines
    assert rows[2].startswith("100 & 1.000 & 1.002 &") and "98.90" in rows[2]
    assert rows[3].startswith(r"\textit{600} &"), "out of range"
    assert rf"\label{{tab:{summary['scenario']['name'].replace('_', '-')}}}" in table


def test_a_swept_path_is_its_last_part_unless_two_have_the_same(run_dir: Path) -> None:
    def heads(*paths: str) -> str:
        summary = summarise(run_dir)
        for cell in summary["cells"]:
            cell["settings"] |= {path: cell["km"] + 1 for path in paths}
        return to_latex(summary)

    said = heads("links.a-b.loss", "deployment.chunk_tokens")
    assert "deployment" not in said and "chunk &" in said and "loss & tokens &" in said
    assert "links.a-b.loss & links.b-c.loss &" in heads("links.a-b.loss", "links.b-c.loss")


def test_what_was_recorded_is_no_command(run_dir: Path) -> None:
    summary = write_outputs(run_dir, ["latex"])
    summary["scenario"]["title"] = r"50 % of \input{x} & $y_1$ #2 ~ ^ {"
    said = to_latex(summary)
    assert r"50\,\% of \textbackslash{}input\{x\} \& \$y\_1\$ \#2 \textasciitilde{} " in said
    assert r"\input" not in said
    assert tex("[5pt]") == "{[}5pt]"
