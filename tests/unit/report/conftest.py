"""The hand-written run of the measure tests serves the report tests too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "measure"))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A whole run, not yet reported on."""
    from handwritten import Run

    return Run().write(tmp_path)
