"""Real site processes on loopback: no root, no VM."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from site_processes import SiteRoom

# The damaging proxy is the cache's own test tool.
sys.path.append(str(Path(__file__).parent.parent / "cache"))


@pytest.fixture(scope="module")
def room() -> Iterator[SiteRoom]:
    """Starts sites; at the end every one that was not killed must balance and end cleanly."""
    with SiteRoom() as made:
        yield made


@pytest.fixture
def own_room() -> Iterator[SiteRoom]:
    """The same for one test alone, for tests that kill or starve a site."""
    with SiteRoom() as made:
        yield made
