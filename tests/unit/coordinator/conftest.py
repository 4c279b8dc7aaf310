"""The coordinator's tests talk to real sites, started as the site tests start them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "site"))

from site_processes import SiteRoom


@pytest.fixture(scope="module")
def room() -> Iterator[SiteRoom]:
    with SiteRoom() as made:
        yield made


@pytest.fixture
def own_room() -> Iterator[SiteRoom]:
    with SiteRoom() as made:
        yield made
