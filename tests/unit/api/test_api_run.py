"""What a finished run is as frames, against the numbers it was written with."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pandas as pd
import pytest
from handwritten import MS

from geokv import ConfigError, RunError, Scenario, load_run, run


def test_a_measurement_as_frames(measured: Path) -> None:
    found = load_run(measured)
    assert found.verdict == "pass"
    assert found.reasons == []
    assert not found.is_drill
    table = found.table
    assert list(table["km"]) == [0, 50, 100, 600]
    assert table["valid"].dtype == bool
    assert table["out_of_range"].tolist() == [False, False, False, True]
    assert table["remote_hit_n"].tolist() == [2] * 4
    assert table["gain"].dtype == float
    # By hand: a recompute takes 500 ms of prefill.
    assert table["recompute_prefill_ms"].tolist() == [500.0] * 4
    requests = found.requests
    warm = requests.query("arm == 'recompute' and not warmup")
    assert len(warm) == 8
    assert (warm["prefill_ns"] == 500 * MS).all()
    assert requests["settings"].iloc[-1] == {"links.a-b.km": 600}
    assert found.links.query("cell == 2")["rtt_asked_ns"].tolist() == [1 * MS, 1 * MS]
    assert found.expectations.set_index("name")["ok"]["answers_equal"]
    assert {"ttft_vs_km", "remote_hit_spans"} <= set(found.plots)
    assert "<svg" in found.plots["ttft_vs_km"]._repr_svg_()
    assert found.scenario.name == "by_hand"


def test_a_drill_as_frames(drilled: Path) -> None:
    found = load_run(drilled)
    assert found.is_drill
    assert found.table["control"].tolist() == [False, True]
    requests = found.requests
    assert requests.groupby("cell").size().tolist() == [60, 60]
    counted = requests.query("cell == 0")["fate"].value_counts()
    summed = found.summary["cells"][0]["fates"]["requests"]
    assert {name: counted.get(name, 0) for name in summed} == summed
    assert requests["ttft_ns"].dtype == "Int64"
    assert (requests["door"] == requests["site"]).all()
    assert set(found.links["phase"]) == {"before", "after"}
    events = found.history
    assert len(events) == len((drilled / "history.jsonl").read_text().splitlines())
    assert events["t_ns"].dtype == "int64"


def test_words_are_not_taken_for_missing_numbers(measured: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(measured, tmp_path / "run")
    (folder / "table.csv").write_text(
        "cache.substrate.codec,valid,gain,flag\nnone,yes,,yes\nzstd,no,0.5,\n"
    )
    table = load_run(folder).table
    assert table["cache.substrate.codec"].tolist() == ["none", "zstd"]
    assert table["valid"].tolist() == [True, False]
    assert pd.isna(table["gain"][0])
    assert table["flag"].dtype == "boolean"
    assert pd.isna(table["flag"][1])


def test_a_notebook_shows_verdict_and_table(measured: Path, drilled: Path) -> None:
    shown = load_run(measured)._repr_html_()
    assert "verdict: <strong>pass</strong>" in shown
    assert "<th>links.a-b.km</th>" in shown or "<th>km</th>" in shown
    drill = load_run(drilled)
    assert f"<strong>{drill.verdict}</strong>" in drill._repr_html_()
    assert repr(drill) == f"<Run by-hand: {drill.verdict}, {drilled}>"


def test_what_is_no_run_is_said(tmp_path: Path, measured: Path) -> None:
    with pytest.raises(ConfigError, match="no such run folder"):
        load_run(tmp_path / "nothing")
    with pytest.raises(RunError, match=r"summary\.json"):
        load_run(tmp_path)
    folder = shutil.copytree(measured, tmp_path / "run")
    (folder / "table.csv").unlink()
    (folder / "requests.parquet").unlink()
    half = load_run(folder)
    for name in ("table", "requests"):
        with pytest.raises(RunError, match="is not there"):
            getattr(half, name)


def test_bad_input_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with pytest.raises(ConfigError, match="no scenario 'smokey'"):
        run("smokey", root=tmp_path)
    small = Scenario("smoke").with_({"deployment.device_bytes": "1MiB"})

    async def inside_a_loop() -> None:
        with pytest.raises(ConfigError, match=r"deployment\.device_bytes: 1 MiB is too small"):
            run(small, root=tmp_path / "made", progress=False)

    asyncio.run(inside_a_loop())
    assert not (tmp_path / "made").exists()
