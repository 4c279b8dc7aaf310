"""Hand-written runs with everything a run folder has; modules of a user in a folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from geokv import foreign
from geokv.report.run_folder import write_all

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "measure"))


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished measurement run."""
    from handwritten import Run

    folder: Path = Run().write(tmp_path_factory.mktemp("measured"))
    write_all(folder)
    return folder


@pytest.fixture(scope="session")
def drilled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished drill."""
    from handwritten_drill import Drill

    folder: Path = Drill().write(tmp_path_factory.mktemp("drilled"))
    write_all(folder)
    return folder


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Callable[[str, str], Path]]:
    """Writes a module of the user's; returns its folder, which code is then found in."""

    def write(name: str, text: str) -> Path:
        (tmp_path / f"{name}.py").write_text(text)
        foreign.use_folders([str(tmp_path)])
        return tmp_path

    yield write
    foreign.use_folders([])
