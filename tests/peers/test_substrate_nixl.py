"""Agents over NIXL (UCX, TCP): the suites of ``tests/unit/cache``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "cache"))
pytest.importorskip("nixl._api", reason="nixl is not installed: pip install 'geokv[nixl]'")

from agent_engines import nixl
from agent_suite import *  # noqa: F403
from agent_suite import Engine
from cache_sites import SECRET
from chunk_suite import *  # noqa: F403
from chunk_suite import MakeTransport

from geokv.cache.substrate.choose import make_transport as choose


@pytest.fixture
def engine() -> Engine:
    return Engine("nixl", nixl)


@pytest.fixture
def make_transport() -> MakeTransport:
    return lambda name, layout: choose("nixl", name, layout, SECRET)
