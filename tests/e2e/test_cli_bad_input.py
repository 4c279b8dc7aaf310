"""What users get wrong: exit 2, the path of the mistake, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from cli import Geokv

SCENARIOS = Path(__file__).parent.parent.parent / "scenarios"


@pytest.fixture
def own(tmp_path: Path) -> Geokv:
    """The command in an empty folder."""
    return Geokv(tmp_path)


def refused(geokv: Geokv, *args: str | Path) -> str:
    """Run, and hold the rules that every refusal has; returns what it said."""
    before = geokv.left()
    done = geokv(*args, timeout=60)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert geokv.left() == before, "a refused command leaves nothing behind"
    return " ".join(done.stderr.split())


def changed(geokv: Geokv, **parts: object) -> Path:
    """smoke.yaml with whole parts replaced."""
    data = yaml.safe_load((SCENARIOS / "smoke.yaml").read_text())
    data.update(parts)
    path = geokv.folder / "mine.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("links.a-b.km=-3", "links.a-b.km: must be ≥ 0, got -3"),
        ("links.a-b.rate=0", "links.a-b.rate"),
        ("vm.memory=64MiB", "vm.memory: must be ≥ 1 GiB"),
        ("deployment.model=/no/such/folder", "deployment.model: no such folder /no/such/folder"),
        ("links.a-b.lenght=3", "links.a-b.lenght: nothing is called that"),
        ("workload.request=3", "did you mean"),
        ("workload.requests", "--set"),
        ("deployment.byte_scale=0", "deployment.byte_scale: must be ≥ 1, got 0"),
        ("workload.prefix_tokens=1000", "workload.prefix_tokens: must be a multiple"),
        ("clock=sundial", "clock"),
        ("deployment.compute=real", "deployment.compute: real computing takes no time"),
        ("deployment.stands_for=gpt-9@abacus", "gpt-9@abacus"),
    ],
)
def test_bad_override(own: Geokv, override: str, words: str) -> None:
    assert words in refused(own, "run", "smoke", "--set", override)


def test_unknown_key_in_a_file(own: Geokv) -> None:
    path = changed(own, worklaod={"requests": 3})
    assert "mine.yaml: worklaod: unknown key" in refused(own, "run", path)


def test_every_mistake_of_a_file_is_told_at_once(own: Geokv) -> None:
    path = changed(own, clok="x", arms=[], vm={"memory": "1KiB"})
    said = refused(own, "run", path)
    for place in ("clok: unknown key", "arms", "vm.memory"):
        assert place in said


def test_site_that_no_link_reaches(own: Geokv) -> None:
    topology = {
        "name": "lonely",
        "title": "One too many",
        "sites": {"a": {"title": "A"}, "b": {"title": "B"}, "c": {"title": "C"}},
        "links": {"a-b": {"km": 5, "kind": "apn"}},
    }
    path = changed(own, topology=topology)
    said = refused(own, "run", path)
    assert "sites.c" in said or "'c'" in said
    assert "link" in said
    alone = own.folder / "lonely.yaml"
    alone.write_text(yaml.safe_dump(topology))
    assert "c" in refused(own, "check", alone)


def test_yaml_mistake_has_line_and_column(own: Geokv) -> None:
    path = own.folder / "broken.yaml"
    path.write_text("name: x\n  title: [y\n")
    assert "broken.yaml:2:" in refused(own, "run", path)


@pytest.mark.parametrize(
    ("command", "name", "meant"),
    [("run", "smok", "smoke"), ("check", "pairs", "pair"), ("check", "metro_ring", "metro-ring")],
)
def test_unknown_name_gets_a_suggestion(own: Geokv, command: str, name: str, meant: str) -> None:
    said = refused(own, command, name)
    assert name in said
    assert f"did you mean {meant}" in said.replace("'", "")


def test_files_that_are_not_there(own: Geokv) -> None:
    assert "nowhere.yaml" in refused(own, "run", "nowhere.yaml")
    assert "nowhere" in refused(own, "table", "nowhere")


def test_out_that_is_not_empty(own: Geokv) -> None:
    (own.folder / "full").mkdir()
    (own.folder / "full" / "thesis.tex").write_text("years of work")
    said = refused(own, "run", "smoke", "--out", own.folder / "full")
    assert "full: is not empty" in said
    assert [path.name for path in (own.folder / "full").iterdir()] == ["thesis.tex"]


def test_out_that_is_a_file(own: Geokv) -> None:
    (own.folder / "file").write_text("x")
    assert "file" in refused(own, "run", "smoke", "--out", own.folder / "file")


@pytest.mark.parametrize(
    "args",
    [
        ("run", "smoke", "--clock", "sundial"),
        ("check", "pair", "--clock", "sundial"),
        ("check", "pair", "--set", "links.a-b.km=-1"),
        ("check", "pair", "--byte-scale", "0"),
        ("run", "smoke", "--seed", "-1"),
        ("run",),
        ("frobnicate",),
        ("kernel", "shell", "--memory", "lots"),
    ],
)
def test_bad_option(own: Geokv, args: tuple[str, ...]) -> None:
    said = refused(own, *args)
    assert args == ("run",) or any(word.split("=")[0] in said for word in args[-2:])


def test_table_of_a_run_that_did_not_finish(own: Geokv) -> None:
    (own.folder / "half").mkdir()
    done = own("table", "half")
    assert done.returncode == 4
    assert "did not finish" in done.stderr
