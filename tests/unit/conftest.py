"""``make check`` leaves out what takes its time (``-m "not slow"``), ``make test`` nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
SLOW_FOLDERS = {"site", "coordinator"}
"""They start processes with a model in each."""
SLOW_FILES = {
    "test_cache_disk",
    "test_cache_fuzz",
    "test_cache_sharing",
    "test_cache_tiers",
    "test_cache_tls",
    "test_cache_wire_faults",
    "test_dashboard_start",
    "test_dashboard_streams",
    "test_engine_loop",
    "test_engine_oracle",
    "test_engine_profile_fit",
    "test_substrate_agents",
    "test_substrate_chunks",
    "test_substrate_transfer",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and (
            item.path.parent.name in SLOW_FOLDERS or item.path.stem in SLOW_FILES
        ):
            item.add_marker(pytest.mark.slow)
