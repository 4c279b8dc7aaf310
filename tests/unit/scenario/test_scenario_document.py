"""A text as workload: where it is read from, what the run folder keeps, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from test_scenario_model import SMALL

from geokv.errors import ConfigError
from geokv.preflight import preflight
from geokv.scenario import Scenario, load_scenario, read_back
from geokv.scenario.workload import Document

TEXT = "A short text, long enough for one chunk of thirty-two bytes.\n"


def data(**changes: Any) -> dict[str, Any]:
    workload = {
        "kind": "document",
        "provider": "a",
        "asker": "b",
        "text": "texts/one.txt",
        "questions": ["What?", "Why?"],
    }
    deployment = {"chunk_tokens": 32, "device_bytes": "1GiB", "dram_bytes": "1GiB"}
    return {**SMALL, "deployment": deployment, "workload": {**workload, **changes}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of scenarios with texts, which is not where the command is typed."""
    home = tmp_path / "mine"
    (home / "texts").mkdir(parents=True)
    (home / "texts" / "one.txt").write_text(TEXT)
    (home / "texts" / "two.txt").write_text("B" * 200)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return home


def load(folder: Path, mapping: dict[str, Any], *overrides: str) -> Scenario:
    path = folder / "one.yaml"
    path.write_text(yaml.safe_dump(mapping))
    return load_scenario(path, list(overrides))


def document(scenario: Scenario) -> Document:
    assert isinstance(scenario.workload, Document)
    return scenario.workload


def test_a_text_lies_beside_its_scenario_and_travels_with_the_run(
    folder: Path, tmp_path: Path
) -> None:
    scenario = load(folder, data())
    assert document(scenario).text.content == TEXT
    assert (document(scenario).requests, document(scenario).warmup) == (2, 0)
    kept = tmp_path / "scenario.yaml"
    kept.write_text(scenario.to_yaml())
    (folder / "texts" / "one.txt").unlink()
    again = read_back(kept)
    assert again == scenario and again.hash == scenario.hash


def test_another_text_is_another_scenario(folder: Path) -> None:
    before = load(folder, data()).hash
    (folder / "texts" / "one.txt").write_text(TEXT + ".")
    assert load(folder, data()).hash != before


def test_overrides_reach_a_document(folder: Path) -> None:
    scenario = load(folder, data(), "workload.output_tokens=7", "workload.template=chat")
    assert (document(scenario).output_tokens, document(scenario).template) == (7, "chat")
    other = load(folder, data(), f"workload.text={folder / 'texts' / 'two.txt'}")
    assert document(other).text.content == "B" * 200


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"text": "texts/none.txt"}, r"workload\.text: .*none\.txt cannot be read"),
        ({"text": "texts"}, r"workload\.text: .*texts cannot be read"),
        ({"text": "texts/empty.txt"}, r"workload\.text: .*empty\.txt is empty"),
        ({"text": "texts/bytes.txt"}, r"workload\.text: .*is not UTF-8"),
        ({"text": {"file": "x", "content": " \n"}}, r"workload\.text\.content: is empty"),
        ({"text": None}, r"workload\.text: "),
        ({"questions": []}, r"workload\.questions: "),
        ({"questions": ["What?", "What?"]}, "'What\\?' is asked twice"),
        ({"prefix_tokens": 1024}, r"workload\.prefix_tokens: unknown key"),
        ({"foreign": "texts/none.txt"}, r"workload\.foreign: .*cannot be read"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, changes: dict[str, Any], said: str) -> None:
    (folder / "texts" / "empty.txt").write_text(" \n")
    (folder / "texts" / "bytes.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match=said):
        load(folder, data(**changes))


def test_controls_need_what_they_plant(folder: Path) -> None:
    arms = ["recompute", "remote-hit", "control-foreign"]
    with pytest.raises(ConfigError, match=r"workload\.foreign: is required by arm control-foreign"):
        load(folder, {**data(), "arms": arms})
    with pytest.raises(ConfigError, match="controls_differ: needs arm control-foreign or control-"):
        load(folder, {**data(), "expect": {"controls_differ": True}})
    with pytest.raises(ConfigError, match="controls_differ: needs arm recompute"):
        load(folder, {**data(), "arms": ["control-corrupt"], "expect": {"controls_differ": True}})


def test_controls_are_run_only_when_named(folder: Path) -> None:
    assert load(folder, data()).arms == ["recompute", "local-hit", "remote-hit"]


@pytest.mark.parametrize(
    ("changes", "deployment", "said"),
    [
        ({}, {"chunk_tokens": 256}, r"workload\.text: 7\d tokens fill no chunk of 256"),
        (
            {"foreign": {"file": "x", "content": "short"}},
            {},
            r"workload\.foreign: must have at least",
        ),
        ({"output_tokens": 16_384}, {}, r"workload\.text: prefix, question and answer are"),
        ({}, {"device_bytes": "4MiB"}, r"deployment\.device_bytes: 4 MiB is too small"),
    ],
)
def test_texts_that_do_not_fit_are_refused_before_anything_is_made(
    folder: Path, changes: dict[str, Any], deployment: dict[str, Any], said: str
) -> None:
    preflight(load(folder, data(foreign="texts/two.txt")))
    mapping = data(**changes)
    mapping["deployment"].update(deployment)
    with pytest.raises(ConfigError, match=said):
        preflight(load(folder, mapping))


def test_the_shipped_text_is_about_a_thousand_tokens() -> None:
    from geokv.coordinator.prompts import make_prompts
    from geokv.engine.models import CATALOGUE, fetched

    scenario = load_scenario("real_text")
    if not fetched(CATALOGUE[0]):
        pytest.skip("run: geokv model fetch smollm2-135m")
    prompts = make_prompts(scenario)
    assert 1024 <= len(prompts.prefix) < 1100
    assert len(prompts.foreign()) >= 1024
    preflight(scenario)
