"""The run folder: made, filled, read back; and the disk that refuses."""

from __future__ import annotations

import json
import xml.etree.ElementTree
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from handwritten import Run
from matplotlib.image import imread

from geokv.errors import ConfigError, RunError
from geokv.measure import summarise
from geokv.report import disk
from geokv.report.console import print_run
from geokv.report.history import merge_history
from geokv.report.plot_ttft import draw
from geokv.report.run_folder import make_run_folder, read_summary, write_all, write_manifest
from geokv.scenario import load_scenario, read_back

WRITTEN = {
    "summary.json",
    "table.csv",
    "table.md",
    "links.json",
    "requests.parquet",
    "history.jsonl",
    "report.html",
    "report.md",
    "table.tex",
    "plots/gain_change.svg",
    "plots/link_check.svg",
    "plots/topology.svg",
    "plots/ttft_cdf.svg",
    "plots/ttft_vs_km.svg",
    "plots/ttft_vs_km.png",
    "plots/remote_hit_spans.svg",
    "plots/remote_hit_spans.png",
}


def files(run_dir: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(run_dir)): path.read_bytes()
        for path in run_dir.rglob("*")
        if path.is_file()
    }


def history(run_dir: Path) -> None:
    lines = {
        "a": ['{"t_ns":5,"site":"a","op":"serve"}', '{"t_ns":9,"site":"a","op":"evict"}'],
        "b": ['{"t_ns":1,"site":"b","op":"lookup"}', '{"t_ns":5,"site":"b","op":"fetch"}'],
    }
    for site, events in lines.items():
        path = run_dir / "records" / f"history-{site}.jsonl"
        path.write_text("".join(event + "\n" for event in events))


def test_everything_is_written_and_twice_the_same(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        run_dir = Run().write(tmp_path / name)
        history(run_dir)
        assert write_all(run_dir) == read_summary(run_dir)
        made.append(files(run_dir))
    assert made[0].keys() >= WRITTEN
    assert made[0] == made[1]


def test_history_is_in_order_of_time(run_dir: Path) -> None:
    assert merge_history(run_dir) is None
    history(run_dir)
    merged = merge_history(run_dir)
    assert merged is not None
    events = [json.loads(line) for line in merged.read_text().splitlines()]
    assert [event["op"] for event in events] == ["lookup", "serve", "fetch", "evict"]
    (run_dir / "records" / "history-b.jsonl").write_text('{"t_ns":1}\n{"op":"lost"}\n')
    with pytest.raises(RunError, match=r"history-b\.jsonl:2: not an event"):
        merge_history(run_dir)


def test_parquet_reads_back(run_dir: Path) -> None:
    write_all(run_dir)
    table = pq.read_table(run_dir / "requests.parquet")
    rows = table.to_pylist()
    assert len(rows) == 4 * 3 * 3
    (row,) = [row for row in rows if row["request_id"] == "remote-hit-2-m1"]
    assert row["ttft_ns"] == 99_899_346
    assert row["fetch_ns"] == 86_899_346
    assert row["output_ids"] == [11, 20, 30, 40]
    assert json.loads(row["settings"]) == {"links.a-b.km": 100}
    spans = [name for name in table.column_names if name.endswith("_ns") and name in row]
    assert {"queue_ns", "lookup_ns", "prefill_ns", "first_byte_ns"} <= set(spans)


def test_links_keep_asked_and_measured(run_dir: Path) -> None:
    write_all(run_dir)
    cells = json.loads((run_dir / "links.json").read_text())["cells"]
    check = cells[2]["links"][0]
    assert (check["rtt_asked_ns"], check["rtt_measured_ns"]) == (1_000_000, 1_001_000)


def test_plots_are_pictures(run_dir: Path) -> None:
    write_all(run_dir)
    picture = imread(run_dir / "plots" / "ttft_vs_km.png")
    assert picture.shape[0] > 500 and picture.shape[1] > 1000
    assert picture[..., :3].std() > 0.05, "an empty canvas"
    svg = (run_dir / "plots" / "ttft_vs_km.svg").read_text()
    xml.etree.ElementTree.fromstring(svg)
    assert "<dc:date>" not in svg


def test_folder_is_named_by_scenario_stamp_and_hash(tmp_path: Path) -> None:
    scenario = load_scenario("smoke")
    one, two = (make_run_folder(scenario, tmp_path / "results") for _ in range(2))
    assert one != two
    assert one.parent == tmp_path / "results" / "smoke"
    assert scenario.hash[:8] in one.name
    assert (one / "records").is_dir()
    assert read_back(one / "scenario.yaml") == scenario
    write_manifest(one, {"clock": "virtual"})
    assert json.loads((one / "manifest.json").read_text()) == {"clock": "virtual"}


def test_an_exact_folder_must_be_new_or_empty(tmp_path: Path) -> None:
    scenario = load_scenario("smoke")
    assert make_run_folder(scenario, exact=tmp_path / "x" / "y") == tmp_path / "x" / "y"
    with pytest.raises(ConfigError, match="is not empty"):
        make_run_folder(scenario, exact=tmp_path / "x" / "y")


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught:
        make_run_folder(load_scenario("smoke"), tmp_path / "file" / "results")
    assert "--out" in caught.value.hint


def test_a_full_disk_is_said_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geokv.report.run_folder.NEEDED_BYTES", 2**62)
    with pytest.raises(RunError, match="the disk is full") as caught:
        make_run_folder(load_scenario("smoke"), tmp_path)
    assert "free some space" in caught.value.hint


@pytest.mark.parametrize("name", ["summary.json", "table.csv", "requests.parquet"])
def test_a_full_disk_is_said_and_leaves_no_half_file(run_dir: Path, name: str) -> None:
    (run_dir / name).symlink_to("/dev/full")
    with pytest.raises(RunError, match=f"{name}: the disk is full") as caught:
        write_all(run_dir)
    assert caught.value.hint
    assert not (run_dir / name).is_symlink()
    assert (run_dir / "records" / "requests.jsonl").stat().st_size > 0


def test_a_full_disk_while_drawing(run_dir: Path) -> None:
    (run_dir / "plots").mkdir()
    (run_dir / "plots" / "ttft_vs_km.png").symlink_to("/dev/full")
    with pytest.raises(RunError, match="the disk is full"):
        write_all(run_dir)


def test_other_write_errors_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="cannot be written"):
        disk.write_text(tmp_path / "folder", "text")


def test_reading_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such run folder"):
        read_summary(tmp_path / "nowhere")
    with pytest.raises(RunError, match="cannot be read") as caught:
        read_summary(tmp_path)
    assert "did not finish" in caught.value.hint
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(RunError, match="not JSON"):
        read_summary(tmp_path)
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(RunError, match="not the summary"):
        read_summary(tmp_path)


def test_summary_on_disk_is_plain_json_and_complete(run_dir: Path) -> None:
    write_all(run_dir)
    text = (run_dir / "summary.json").read_text(encoding="utf-8")
    assert json.loads(text) == json.loads(json.dumps(summarise(run_dir)))
    summary = json.loads(text)
    cell = summary["cells"][0]
    asked = "km rtt_asked_ms rtt_measured_ms goodput_ratio valid gain gain_change_percent wrong"
    assert set(asked.split()) <= cell.keys()
    assert set(cell["arms"]) == {"recompute", "local_hit", "remote_hit"}
    for arm in cell["arms"].values():
        assert {"n", "ttft_p50_ms", "ttft_p99_ms", "spans_ms", "bytes", "energy_j"} <= arm.keys()
    assert {"bound_ms", "ratio_to_bound"} <= cell["arms"]["remote_hit"].keys()


def test_far_cells_do_not_flatten_the_near_ones(tmp_path: Path) -> None:
    run = Run()
    for row in run.requests:
        if row["arm"] == "remote-hit" and row["cell"] == 3:
            row["spans"]["fetch_ns"] += 9_000_000_000
            row["ttft_ns"] += 9_000_000_000
    summary = summarise(run.write(tmp_path))
    figure = draw(summary)
    assert figure is not None
    near, far = figure.axes
    assert near.get_ylim()[1] < 600
    assert far.get_ylim()[1] > 9000
    figure = draw(summarise(Run().write(tmp_path / "plain")))
    assert figure is not None
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()


def test_table_in_a_pipe_is_wide_enough(
    run_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_run(summarise(run_dir))
    assert "…" not in capsys.readouterr().out
