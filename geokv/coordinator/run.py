"""The part of a run that happens inside: lab, fleet and some of the scenario's cells.

    python -m geokv.coordinator.run RUN_DIR PART PARTS

Runs the cells whose index is PART modulo PARTS and appends their records to
``RUN_DIR/records``. Standard output is a stream of JSON lines, one per step.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from geokv.clock import now_ns
from geokv.coordinator.cells import CellRunner
from geokv.coordinator.deploy import site_settings
from geokv.coordinator.fleet import Fleet
from geokv.errors import GeokvError
from geokv.lab.build import Lab
from geokv.lab.plan import compile_plan
from geokv.scenario import Scenario
from geokv.scenario.load import read_back
from geokv.site.history import unwritable


def progress(event: str, **more: Any) -> None:
    """One line on standard output: what is going on now."""
    print(json.dumps({"event": event, "t_ns": now_ns(), **more}), flush=True)


def run_part(run_dir: Path, part: int, parts: int) -> None:
    """Run this part's cells.

    Raises:
        GeokvError: the lab or a site could not be made, or a record not be written.
    """
    scenario = read_back(run_dir / "scenario.yaml")
    cells = [cell for cell in scenario.cells() if cell.index % parts == part]
    records = run_dir / "records"
    plan = compile_plan(cells[0].topology, scenario.deployment.byte_scale, scenario.seed)
    control = Path(tempfile.mkdtemp(prefix="geokv-control-", dir="/run"))
    try:
        progress("lab", sites=len(plan.sites), links=len(plan.links))
        with Fleet() as fleet, Lab.build(plan) as lab:
            _start(scenario, lab, fleet, control, records, part)

            def write(name: str, row: dict[str, Any]) -> None:
                _append(records / f"{name}-{part}.jsonl", row)

            runner = CellRunner(scenario, lab, fleet, write, progress)
            for cell in cells:
                runner.run(cell)
            stats = {name: site.get("/stats") for name, site in fleet.sites.items()}
            (records / f"stats-{part}.json").write_text(json.dumps(stats), encoding="utf-8")
    finally:
        shutil.rmtree(control, ignore_errors=True)


def _append(path: Path, row: dict[str, Any]) -> None:
    """One JSON line more.

    Raises:
        RunError: the disk is full, or the folder has gone.
    """
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row, separators=(",", ":")) + "\n")
    except OSError as error:
        raise unwritable(path, error) from None


def _start(
    scenario: Scenario, lab: Lab, fleet: Fleet, control: Path, records: Path, part: int
) -> None:
    progress("sites", sites=list(scenario.topology.sites))
    for settings in site_settings(scenario, lab, control, records, str(part)):
        fleet.start_site(settings, lab.netns(settings.name))
    for name in dict.fromkeys((scenario.workload.provider, scenario.workload.asker)):
        fleet.start_client(name, lab.access_netns(name))
    fleet.wait_ready()


def main() -> None:
    try:
        run_part(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    except GeokvError as error:
        progress(
            "error",
            message=error.message,
            hint=error.hint,
            kind=type(error).__name__,
            exit_code=error.exit_code,
        )
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
