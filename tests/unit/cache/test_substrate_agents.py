"""Agents over our own TCP, and what only this engine promises."""

from __future__ import annotations

import pytest
from agent_engines import tcp
from agent_suite import *  # noqa: F403
from agent_suite import Engine


@pytest.fixture
def engine() -> Engine:
    return Engine("tcp", tcp, 48 * 2**20)
