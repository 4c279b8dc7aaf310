"""CSV, Markdown and the terminal, as a reader gets them."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from handwritten import SCENARIO, Run
from rich.console import Console

from geokv.measure import summarise
from geokv.report.console import print_run
from geokv.report.csv import to_csv
from geokv.report.markdown import to_markdown

GOLDEN = Path(__file__).parent / "golden"


def printed(summary: dict[str, Any], width: int = 110) -> str:
    out = io.StringIO()
    print_run(summary, Console(file=out, width=width))
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "make"),
    [("table.csv", to_csv), ("table.md", to_markdown), ("console.txt", printed)],
)
def test_output_is_the_committed_one(run_dir: Path, name: str, make: Any) -> None:
    """To accept a change on purpose: write the new text over the golden file."""
    assert make(summarise(run_dir)) == (GOLDEN / name).read_text(encoding="utf-8")


def test_csv_parses_and_has_a_row_per_cell(run_dir: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(summarise(run_dir)))))
    assert [row["km"] for row in rows] == ["0.0", "50.0", "100.0", "600.0"]
    assert [row["out_of_range"] for row in rows] == ["no", "no", "no", "yes"]
    assert rows[2]["remote_hit_ttft_p50_ms"] == "98.899"
    assert rows[2]["remote_hit_ratio_to_bound"] == "1.0206"
    assert rows[2]["remote_hit_fetch_ms"] == "86.899"
    assert rows[2]["wrong"] == "0"


def test_a_void_cell_shows_no_number(tmp_path: Path) -> None:
    run = Run()
    run.cells[2]["links"][0].update(ok=False, problems=["too slow"])
    summary = summarise(run.write(tmp_path))
    row = list(csv.DictReader(io.StringIO(to_csv(summary))))[2]
    assert row["valid"] == "no"
    for name in ("remote_hit_ttft_p50_ms", "gain", "remote_hit_ratio_to_bound"):
        assert row[name] == ""
    text = printed(summary)
    assert "void" in text and "98.90" not in text.split("100 ")[1].split("\n")[0]
    assert "verdict: invalid" in text
    assert "! a-b 100 km: link a-b, before the cell: too slow" in text
    assert "**no**" in to_markdown(summary)


def test_the_table_fits_110_columns_without_losing_a_digit(run_dir: Path) -> None:
    text = printed(summarise(run_dir))
    assert max(len(line) for line in text.split("\n")) <= 110
    assert "…" not in text
    for word in ("98.90", "80.3", "1.021", "0/6", "S = 4", "virtual clock", "6.12.0", "seed 1"):
        assert word in text
    assert "600 *" in text and "✓ answers_equal" in text and "verdict: pass" in text


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    run = Run()
    run.row("remote-hit-2-m1")["output_ids"] = [1]
    summary = summarise(run.write(tmp_path))
    assert "✗ answers_equal" in printed(summary)
    assert "verdict: fail" in printed(summary)
    assert "1/6" in printed(summary)
    assert "| ✗ | answers_equal |" in to_markdown(summary)


def test_other_swept_settings_get_a_column(tmp_path: Path) -> None:
    axes = [
        {"path": "links.a-b.km", "values": [0, 50]},
        {"path": "links.a-b.rate", "values": ["10G", "100G"]},
    ]
    summary = summarise(Run({**SCENARIO, "expect": {}, "sweep": axes}).write(tmp_path))
    assert to_csv(summary).startswith("links.a-b.rate,km,")
    assert "| links.a-b.rate |" in to_markdown(summary)
    assert "100G" in printed(summary, 140)


def test_fewer_arms_give_fewer_columns(tmp_path: Path) -> None:
    data = {**SCENARIO, "expect": {}, "arms": ["recompute"]}
    summary = summarise(Run(data).write(tmp_path))
    assert summary["verdict"] == "pass"
    assert "remote_hit" not in to_csv(summary)
    assert "local" not in printed(summary).split("TTFT: median")[0].split("km", 1)[1]
