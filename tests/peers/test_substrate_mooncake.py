"""Agents over Mooncake's engine: the suite of ``tests/unit/cache/agent_suite.py``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "cache"))
pytest.importorskip(
    "mooncake.engine",
    reason="mooncake is not installed: pip install 'geokv[mooncake]' (needs libibverbs1)",
)

from agent_engines import mooncake  # noqa: E402
from agent_suite import *  # noqa: E402, F403
from agent_suite import Engine  # noqa: E402


@pytest.fixture
def engine() -> Engine:
    return Engine("mooncake", mooncake)
