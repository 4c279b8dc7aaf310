"""Real weights, a real text: the same words from fetched KV, other ones from wrong KV."""

from __future__ import annotations

import json

import pytest
from cli import Geokv, Run
from conftest import REFERENCE, table_of

from geokv.engine.models import CATALOGUE, fetched
from geokv.scenario import load_scenario
from geokv.scenario.workload import Document

ARMS = ("recompute", "local-hit", "remote-hit", "control-foreign", "control-corrupt")
CELLS = 3


@pytest.fixture(scope="module")
def run(geokv: Geokv, vm: None) -> Run:
    """scenarios/real_text.yaml as it is."""
    if fetched(CATALOGUE[0]) is None:
        pytest.skip("run: geokv model fetch smollm2-135m")
    return geokv.run_scenario("real_text", timeout=900)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_passes_and_says_why(run: Run) -> None:
    assert run.done.returncode == 0, run.done.stdout + run.done.stderr
    said = {item["name"]: item for item in run.summary["expectations"]}
    assert said["answers_equal"]["said"] == "all 24 answers equal the recomputed ones"
    assert said["remote_used"]["ok"] and said["controls_differ"]["ok"]
    assert said["controls_differ"]["said"].startswith("all 24 answers over wrong KV")
    for cell in run.summary["cells"]:
        assert cell["first_logits_diff"] < 1e-3
        for control in cell["controls"].values():
            # Wrong KV is not a little off: it is another context.
            assert control["smallest_logits_diff"] > 0.5
            assert "does not match its checksums" in control["planted"]


@pytest.mark.slow
def test_its_table_is_the_reference(run: Run, pinned: None) -> None:
    assert table_of(run.folder) == table_of(REFERENCE / "real_text")


@pytest.mark.slow
def test_words_fetched_over_100_km_are_the_recomputed_ones(run: Run) -> None:
    workload = load_scenario("real_text").workload
    assert isinstance(workload, Document)
    lines = (run.folder / "records" / "requests.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    text = {(row["cell"], row["arm"], row["repeat"]): row["text"] for row in rows}
    for repeat in range(len(workload.questions)):
        own = {text[cell, "recompute", repeat] for cell in range(CELLS)}
        assert len(own) == 1
        for arm in ("local-hit", "remote-hit"):
            assert {text[cell, arm, repeat] for cell in range(CELLS)} == own
        foreign = {text[cell, "control-foreign", repeat] for cell in range(CELLS)}
        assert foreign.isdisjoint(own)
    assert "oak tree" in text[CELLS - 1, "remote-hit", 1]
    assert "Turing" in text[CELLS - 1, "remote-hit", 2]
    served = {(row["arm"], row["source"]) for row in rows if row["arm"] != "prepare"}
    assert ("remote-hit", "remote") in served and ("control-corrupt", "dram") in served
    assert {arm for arm, _ in served} == set(ARMS)


@pytest.mark.slow
def test_answers_are_printed_everywhere(run: Run) -> None:
    console = " ".join(run.done.stdout.split())
    assert console.count("identical at 0, 50, 100 km") == 4
    assert "The meeting place is the old oak tree on the east side of the car park." in console
    assert "with another text's KV planted" in console
    for name in ("table.md", "report.html"):
        shown = (run.folder / name).read_text()
        assert shown.count("identical at 0, 50, 100 km") == 4
        assert "old oak tree" in shown


@pytest.mark.slow
def test_the_run_folder_repeats_the_run_without_the_text_file(run: Run, geokv: Geokv) -> None:
    kept = (run.folder / "scenario.yaml").read_text()
    assert "Brookfield" in kept and "orchard garden" in kept
    path = geokv.folder / "kept.yaml"
    path.write_text(kept)
    manifest = json.loads((run.folder / "manifest.json").read_text())
    assert load_scenario(path).hash == manifest["scenario_hash"]
