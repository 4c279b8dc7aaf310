"""Agents over Mooncake's engine: the suites of ``tests/unit/cache``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "cache"))
pytest.importorskip(
    "mooncake.engine",
    reason="mooncake is not installed: pip install 'geokv[mooncake]' (needs libibverbs1)",
)

from agent_engines import mooncake
from agent_suite import *  # noqa: F403
from agent_suite import Engine
from cache_sites import SECRET
from chunk_suite import *  # noqa: F403
from chunk_suite import MakeTransport

from geokv.cache.substrate.choose import make_transport as choose


@pytest.fixture
def engine() -> Engine:
    return Engine("mooncake", mooncake)


@pytest.fixture
def make_transport() -> MakeTransport:
    return lambda name, layout: choose("mooncake", name, layout, SECRET)
