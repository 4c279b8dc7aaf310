"""The reference tables belong to the scenarios as they are shipped."""

from __future__ import annotations

import csv
import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest
from references import CHECKOUT, rows_of

from geokv.scenario import load_scenario, read_back
from geokv.scenario.substrate import LOSSY

REFERENCE = CHECKOUT / "results" / "reference"


def _script() -> ModuleType:
    """``tests/reference.py``, which is a command and no module of a package."""
    spec = importlib.util.spec_from_file_location("reference", CHECKOUT / "tests" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()
NAMES: list[str] = SCRIPT.names()
DRILLS = [name for name in NAMES if name.startswith(SCRIPT.DRILLS)]
MEASURED = [name for name in NAMES if name not in DRILLS]


@pytest.mark.parametrize("name", NAMES)
def test_a_reference_is_of_the_scenario_as_shipped(name: str) -> None:
    """After a change of the scenario: ``python tests/reference.py --write NAME``.

    Keys that were added since have their defaults here.
    """
    ran = read_back(REFERENCE / name / "scenario.yaml").resolved()
    shipped = load_scenario(str(SCRIPT.path_of(name))).resolved()
    if name in DRILLS:  # side by side each has one VM for all its cells
        ran["vm"]["jobs"] = shipped["vm"]["jobs"]
    assert {key: ran[key] for key in ran if ran[key] != shipped[key]} == {}
    assert ran == shipped


@pytest.mark.parametrize("name", MEASURED)
def test_a_reference_has_a_valid_row_for_every_cell(name: str) -> None:
    rows, cells = rows_of(name), load_scenario(name).cells()
    assert len(rows) == len(cells)
    for row, cell in zip(rows, cells, strict=True):
        assert row["valid"] == "yes", cell.label
        # Lossy KV may give another answer, which is counted and shown.
        lossy = cell.scenario.cache.substrate.codec in LOSSY
        assert lossy or row["wrong"] == "0", cell.label
        assert float(row["km"]) == cell.km
        for title, value in cell.settings.items():
            if not title.endswith(".km"):
                assert row[title] == str(value), cell.label


def test_the_readme_names_every_reference_and_its_command() -> None:
    """``python tests/reference.py --index`` prints the list."""
    assert SCRIPT.index() in (REFERENCE / "README.md").read_text(encoding="utf-8")
    found = {str(path.parent.relative_to(REFERENCE)) for path in REFERENCE.rglob("table.csv")}
    assert found == set(NAMES)


def test_the_hunt_found_nothing_and_its_page_has_its_sums() -> None:
    with (REFERENCE / "hunt" / "seeds.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [int(row["seed"]) for row in rows] == list(range(1, 201))
    assert {row["verdict"] for row in rows} == {"pass"}
    sums = [
        sum(int(row[name]) for row in rows)
        for name in ("asked", "answered", "fetches", "lost", "wrong", "hung", "leaked")
    ]
    assert sums[-3:] == [0, 0, 0]
    page = (CHECKOUT / "docs" / "drills.md").read_text(encoding="utf-8")
    assert f"| {' | '.join(f'{one:,}' for one in sums)} |" in page


def test_a_kept_run_of_another_scenario_is_not_taken_and_stays_as_it_is(tmp_path: Path) -> None:
    kept = tmp_path / "scenario.yaml"
    kept.write_text(load_scenario("smoke", ["title=Another"]).to_yaml(), encoding="utf-8")
    assert "of a scenario that was another" in SCRIPT._ended("smoke", tmp_path)
    assert list(tmp_path.iterdir()) == [kept]
    more_vms = load_scenario("smoke", ["vm.jobs=3"]).to_yaml()
    kept.write_text(more_vms, encoding="utf-8")
    assert "did not come to its end" in SCRIPT._ended("smoke", tmp_path)


def test_a_changed_digit_is_a_difference(tmp_path: Path) -> None:
    reference = REFERENCE / "smoke"
    text = (reference / "table.csv").read_text(encoding="utf-8")
    (tmp_path / "table.csv").write_text(text, encoding="utf-8")
    assert SCRIPT.difference(reference, tmp_path) == []
    head, row, rest = text.split("\n", 2)
    (tmp_path / "table.csv").write_text(f"{head}\n{row}1\n{rest}", encoding="utf-8")
    assert SCRIPT.difference(reference, tmp_path)[-2:] == [f"-{row}", f"+{row}1"]


def test_a_figure_that_changed_is_a_difference(tmp_path: Path) -> None:
    reference = REFERENCE / "distance_ttft"
    shutil.copytree(reference, tmp_path, dirs_exist_ok=True)
    (tmp_path / "plots").mkdir()
    figure = tmp_path / "plots" / "ttft_vs_km.svg"
    shutil.move(tmp_path / "ttft_vs_km.svg", figure)
    assert SCRIPT.difference(reference, tmp_path) == []
    text = figure.read_text(encoding="utf-8")
    figure.write_text(text.replace("km", "miles", 1), encoding="utf-8")
    assert SCRIPT.difference(reference, tmp_path)[0] == "--- reference ttft_vs_km.svg"


def test_a_reference_is_written_with_the_files_it_has(tmp_path: Path) -> None:
    reference, out = tmp_path / "reference", tmp_path / "out"
    for folder in (reference, out / "plots"):
        folder.mkdir(parents=True)
    for name in ("table.csv", "table.md", "scenario.yaml", "plots/one.svg", "plots/two.svg"):
        (out / name).write_text(f"new {name}")
    for name in ("table.csv", "scenario.yaml", "two.svg"):
        (reference / name).write_text("old")
    SCRIPT.write(reference, out)
    left = {path.name: path.read_text() for path in reference.iterdir()}
    assert left == {
        "table.csv": "new table.csv",
        "scenario.yaml": "new scenario.yaml",
        "two.svg": "new plots/two.svg",
    }
