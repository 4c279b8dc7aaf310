"""``docs/scenarios.md`` names every key, default and column there is, and none that is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq
import pytest
import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from geokv.lab.profiles import Profile
from geokv.lab.topology import Topology
from geokv.report import csv as table
from geokv.report.drill_parquet import write_drill_parquet
from geokv.report.parquet import write_parquet
from geokv.scenario import Scenario
from geokv.scenario.energy import Constant

DOC = (Path(__file__).resolve().parents[3] / "docs" / "scenarios.md").read_text(encoding="utf-8")
ARMS = ("recompute", "local_hit", "remote_hit")
OF_A_DRILL = "Of a **drill**"

Keys = dict[str, list[FieldInfo]]


def section(heading: str) -> str:
    """The text under one second-level heading."""
    return DOC.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> Iterator[list[str]]:
    """Cells of every table row whose first cell is code."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            yield cells


def models(annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """Models inside an annotation, with what stands between them and the key: dict or list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "", annotation
        return
    origin = getattr(annotation, "__origin__", None)
    step = {dict: ".*", list: "[]"}.get(origin, "")
    for part in get_args(annotation):
        for inner, model in models(part):
            yield step + inner, model


def keys(model: type[BaseModel], leaves: tuple[type, ...], prefix: str = "") -> Keys:
    """Dotted path → fields of that name; unions by ``kind`` give several."""
    found: Keys = {}
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        inside = [(step, inner) for step, inner in models(field.annotation) if inner not in leaves]
        plain = not inside or field.default is None or any(step for step, _ in inside)
        if plain:
            found.setdefault(path, []).append(field)
        for step, inner in inside:
            for key, fields in keys(inner, leaves, f"{path}{step}.").items():
                found.setdefault(key, []).extend(fields)
    return found


def says_default(field: FieldInfo, cell: str) -> bool:
    """Whether a table's cell is this field's default, read the way a scenario is read."""
    if field.is_required():
        return cell == "required"
    default = field.get_default(call_default_factory=True)
    if default is None:
        return cell == "–"
    if not re.fullmatch(r"`.*`", cell):
        return False
    value = yaml.safe_load(cell[1:-1])
    if isinstance(default, Constant):
        return bool(value == default.value)
    whole = TypeAdapter(field.annotation)
    for rule in field.metadata:
        if hasattr(rule, "func"):
            value = rule.func(value)
    return bool(whole.validate_python(value) == default)


SECTIONS = [
    ("Keys of a scenario", Scenario, (Topology, Constant)),
    ("Keys of a topology", Topology, ()),
]


@pytest.mark.parametrize(("heading", "model", "leaves"), SECTIONS)
def test_every_key_is_documented_with_its_default(heading, model, leaves):
    known = keys(model, leaves)
    documented = {cells[0].strip("`"): cells[1] for cells in rows(section(heading))}
    if model is Scenario:
        constant = {name: documented.pop(name) for name in Constant.model_fields}
        assert set(constant.values()) == {"required"}
    assert set(documented) == set(known)
    for path, fields in known.items():
        assert any(says_default(field, documented[path]) for field in fields), path


def test_every_key_of_a_profile_is_documented():
    documented = {cells[0].strip("`") for cells in rows(section("Keys of a link profile"))}
    assert documented == set(Profile.model_fields)
    assert all(field.is_required() for field in Profile.model_fields.values())


def names(heading: str, after: str = "", before: str = "\0") -> set[str]:
    """Columns named in the first cells of a section's tables, ``<arm>`` filled in.

    ``after`` and ``before``: words between which the tables stand.
    """
    text = section(heading).partition(after)[2] if after else section(heading)
    text = text.partition(before)[0]
    found = {name for cells in rows(text) for name in re.findall(r"`([^`]+)`", cells[0])}
    for name in [name for name in found if "<arm>" in name]:
        found.remove(name)
        found |= {name.replace("<arm>", arm) for arm in ARMS}
    return found


def test_every_column_of_the_table_is_documented():
    arm = {
        "n": 1, "failed": 0, "bytes": 0, "ttft_p50_ms": 1.0, "ttft_p99_ms": 1.0, "interval": None,
        "ttft_max_ms": 1.0, "ttft_mean_ms": 1.0, "p99_interval": None, "mean_interval": None,
        "spans_ms": {}, "energy_j": None, "energy_parts_j": None,
    }  # fmt: skip
    remote = {**arm, "fetched": 1, "bound_ms": 1.0, "ratio_to_bound": 1.0, "fetching": None}
    cell = dict.fromkeys((*table._CELL, *table._COMPARED, *table._ANSWERS))
    cell |= {"settings": {}, "valid": True}
    cell |= {"arms": {"recompute": arm, "local_hit": arm, "remote_hit": remote}}
    assert set(table.to_csv({"cells": [cell]}).strip("\n").split("\n")[0].split(",")) == names(
        "Columns of table.csv"
    )


def test_every_column_of_the_requests_is_documented(tmp_path):
    write_parquet(tmp_path / "requests.parquet", [], [], {})
    columns = set(pq.read_schema(tmp_path / "requests.parquet").names)
    assert names("Columns of requests.parquet", before=OF_A_DRILL) == columns


def test_every_column_that_only_a_drill_has_is_documented(tmp_path):
    write_parquet(tmp_path / "run.parquet", [], [], {})
    (tmp_path / "history.jsonl").touch()
    write_drill_parquet(tmp_path / "drill.parquet", tmp_path, {"cells": []})
    shared, drill = (
        set(pq.read_schema(tmp_path / name).names) for name in ("run.parquet", "drill.parquet")
    )
    said = names("Columns of requests.parquet", after=OF_A_DRILL)
    # A status can be something else there.
    assert said - {"status"} == drill - shared
