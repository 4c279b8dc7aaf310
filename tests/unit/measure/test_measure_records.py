"""Records that are not exactly records are refused, with their line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from handwritten import Run

from geokv.errors import RunError
from geokv.measure import summarise
from geokv.measure.records import load_cells, load_manifest, load_requests
from geokv.scenario import hash_as_written, read_back


def test_records_are_read_whole(tmp_path: Path) -> None:
    Run().write(tmp_path)
    assert len(load_requests(tmp_path)) == 4 * 3 * 3
    assert [row.cell for row in load_cells(tmp_path)] == [0, 1, 2, 3]
    manifest, whole = load_manifest(tmp_path)
    assert manifest.byte_scale == 4
    assert whole["versions"] == {"geokv": "0.1.0"}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        json.dumps({"request_id": "x"}),
        "EXTRA",
        "WRONG TYPE",
        "NAN",
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    run = Run()
    run.write(tmp_path)
    good = json.dumps(run.requests[0])
    bad = {
        "EXTRA": json.dumps({**run.requests[0], "colour": 1}),
        "WRONG TYPE": json.dumps({**run.requests[0], "ttft_ns": "soon"}),
        "NAN": good.replace("0.5", "NaN"),
    }.get(line, line)
    path = tmp_path / "records" / "requests.jsonl"
    path.write_text(f"{good}\n{bad}\n{good}\n")
    with pytest.raises(RunError) as caught:
        load_requests(tmp_path)
    assert caught.value.message.startswith(f"{path}:2: not a record")


def test_a_line_cut_off_at_the_end_is_named(tmp_path: Path) -> None:
    Run().write(tmp_path)
    path = tmp_path / "records" / "cells.jsonl"
    path.write_text(path.read_text()[:-20])
    with pytest.raises(RunError, match=r"cells\.jsonl:4: not a record"):
        load_cells(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    Run().write(tmp_path)
    (tmp_path / "records" / "cells.jsonl").unlink()
    with pytest.raises(RunError, match=r"cells\.jsonl: cannot be read"):
        summarise(tmp_path)


def spoilt(name: str) -> Run:
    run = Run()
    first: dict[str, Any] = run.requests[0]
    match name:
        case "twice":
            run.requests.append(dict(first))
        case "cell twice":
            run.cells.append(run.cells[0])
        case "no such cell":
            first["cell"] = 9
        case "other settings":
            run.cells[1]["settings"] = {"links.a-b.km": 51}
        case "other scenario":
            run.manifest["scenario_hash"] = "0" * 32
    return run


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("twice", "recompute repeat 0 is recorded twice"),
        ("cell twice", "cell 0 is recorded twice"),
        ("no such cell", "cell 9 is none of the scenario's 4"),
        ("other settings", "is not the scenario's"),
        ("other scenario", "is not what ran"),
    ],
)
def test_records_of_something_else_are_refused(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(RunError, match=said):
        summarise(spoilt(name).write(tmp_path))


def written_by_an_earlier_version(folder: Path) -> Path:
    """A run folder whose scenario lacks keys that there were none of when it was made."""
    Run().write(folder)
    path = folder / "scenario.yaml"
    kept = yaml.safe_load(path.read_text(encoding="utf-8"))
    del kept["energy"], kept["cache"]["tiers"], kept["vm"]
    path.write_text(yaml.safe_dump(kept, sort_keys=False), encoding="utf-8")
    return path


def test_a_run_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = written_by_an_earlier_version(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    manifest["scenario_hash"] = hash_as_written(path)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert read_back(path).hash != hash_as_written(path), "this version knows more keys"
    assert summarise(tmp_path)["verdict"] == "pass"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("requests: 2", "requests: 3"), encoding="utf-8")
    with pytest.raises(RunError, match="is not what ran"):
        summarise(tmp_path)
