"""``make check`` leaves out what takes its time (``-m "not slow"``), ``make test`` nothing.

Here are the files that are slow as a whole; of the others, single tests bear the mark.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Machines that others use, too, are slow now and then; no test is about that.
settings.register_profile("geokv", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("geokv")

# A shell that runs the tests in its background ignores Ctrl-C, nohup ignores a hang-up, and what
# they start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

HERE = Path(__file__).parent
SLOW_FOLDERS = {"site", "coordinator"}
"""They start processes with a model in each."""
SLOW_FILES = {
    "test_api_own_code",
    "test_api_packaged_code",
    "test_api_run",
    "test_cache_disk",
    "test_cache_disk_hangs",
    "test_cache_fuzz",
    "test_cache_membership",
    "test_cache_purge",
    "test_cache_sharing",
    "test_cache_tiers",
    "test_cache_tls",
    "test_cache_wire_faults",
    "test_cache_wire_reports",
    "test_checker_honest",
    "test_codec_charged",
    "test_dashboard_files",
    "test_dashboard_orders",
    "test_dashboard_runs",
    "test_dashboard_start",
    "test_dashboard_streams",
    "test_drill_compared",
    "test_drills_suite",
    "test_ending",
    "test_engine_loop",
    "test_engine_model_batches",
    "test_engine_oracle",
    "test_engine_profile_fit",
    "test_engine_serving",
    "test_gaps_run",
    "test_measure_by_hand",
    "test_report_compare",
    "test_report_energy",
    "test_report_folder",
    "test_report_gaps",
    "test_report_html",
    "test_report_latex_compiled",
    "test_report_otlp_rules",
    "test_report_outputs",
    "test_report_prometheus",
    "test_report_sweeps",
    "test_statistics_differences",
    "test_substrate_agents",
    "test_substrate_chunks",
    "test_substrate_transfer",
    "test_vm_run_queue",
}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The quick run does not even read them: that would be a quarter of its time."""
    quick = config.option.markexpr == "not slow"
    return True if quick and collection_path.suffix == ".py" and _is_slow(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and _is_slow(item.path):
            item.add_marker(pytest.mark.slow)


def _is_slow(path: Path) -> bool:
    return path.parent.name in SLOW_FOLDERS or path.stem in SLOW_FILES
