"""A server on loopback over a folder of hand-written runs."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "measure"))

from serving import GROWING, Served, served


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """The folder of runs; nothing is in it."""
    folder = tmp_path / "results"
    folder.mkdir()
    yield folder
    while GROWING:
        GROWING.pop().stream.close()


@pytest.fixture
async def server(root: Path) -> AsyncIterator[Served]:
    async with served(root) as one:
        yield one
