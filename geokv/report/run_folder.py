"""The folder of one run: made before it, filled by it, and completed here after it.

results/<scenario>/<stamp>-<short hash>/
  scenario.yaml  manifest.json  records/  log.txt      written by the run
  summary.json  table.csv  table.md  table.tex  links.json  requests.parquet
  history.jsonl  trace.jsonl  plots/  report.md  report.html  written by write_all
"""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from geokv.errors import ConfigError, RunError
from geokv.live.follow import is_going_on
from geokv.report.disk import explained, require_space, saving, write_text
from geokv.report.outputs import FORMATS, Format, write_outputs
from geokv.scenario import Scenario

NEEDED_BYTES = 32 * 2**20
"""Room a run folder must have: records of some thousand requests, plots and tables."""


def make_run_folder(
    scenario: Scenario, root: Path = Path("results"), *, exact: Path | None = None
) -> Path:
    """Make ``<root>/<scenario>/<stamp>-<short hash>/`` with ``records/`` and ``plots/``.

    The stamp is UTC wall clock, the only place that reads it. ``scenario.yaml`` is
    written at once.

    Args:
        exact: use this folder instead; it must be new or empty.

    Raises:
        ConfigError: not writable, or ``exact`` holds something.
        RunError: no space left.
    """
    parent = exact.parent if exact else root / scenario.name
    try:
        parent.mkdir(parents=True, exist_ok=True)
        run_dir = _exact(exact) if exact else stamped_folder(parent, scenario.hash[:8])
    except OSError as error:
        raise explained(error, exact or parent) from None
    require_space(run_dir, NEEDED_BYTES)
    for name in ("records", "plots"):
        with saving(run_dir / name):
            (run_dir / name).mkdir()
    write_text(run_dir / "scenario.yaml", scenario.to_yaml())
    return run_dir


def write_manifest(run_dir: Path, manifest: dict[str, Any]) -> None:
    """Write ``manifest.json``; see ``geokv.measure.records.Manifest`` for its keys."""
    write_text(run_dir / "manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def write_all(run_dir: Path, formats: Collection[Format] = FORMATS) -> dict[str, Any]:
    """Reduce the records of a finished run and write every output; returns the summary.

    Args:
        formats: which; the summary, the history and the trace are always written.

    Raises:
        RunError: broken or missing records, or a full disk.
        ConfigError: the folder cannot be written to.
    """
    return write_outputs(run_dir, formats)


def read_summary(run_dir: Path) -> dict[str, Any]:
    """``summary.json`` of a finished run.

    Raises:
        ConfigError: no such folder.
        RunError: the run has no summary, or a broken one.
    """
    if not run_dir.is_dir():
        raise ConfigError(f"{run_dir}: no such run folder", "runs are kept under results/")
    path = run_dir / "summary.json"
    try:
        summary: dict[str, Any] = json.loads(path.read_bytes())
    except OSError as error:
        hint = "this run did not finish; see its log.txt"
        if is_going_on(run_dir):
            hint = "this run still goes on: wait for its end"
        raise RunError(f"{path}: cannot be read ({error.strerror})", hint) from None
    except ValueError as error:
        raise RunError(f"{path}: not JSON ({error})") from None
    if not isinstance(summary, dict) or not {"verdict", "cells"} <= summary.keys():
        raise RunError(f"{path}: not the summary of a run")
    return summary


def _exact(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    if any(folder.iterdir()):
        raise ConfigError(f"{folder}: is not empty", "give --out a new folder, or empty this one")
    return folder


def stamped_folder(parent: Path, short_hash: str) -> Path:
    """Make ``<parent>/<stamp>-<short hash>/``, empty; ``parent`` has to be there.

    Raises:
        OSError: it cannot be made.
        RunError: no name is left in this second.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        # Two runs of one second differ by a counter.
        suffix = "" if number == 1 else f"-{number}"
        folder = parent / f"{stamp}-{short_hash}{suffix}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise RunError(f"{parent}: a thousand runs started within one second")
