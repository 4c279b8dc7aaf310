"""The part of a run that happens inside: lab, fleet and some of the scenario's cells.

    python -m geokv.coordinator.run RUN_DIR PART PARTS [live]

Runs the cells whose index is PART modulo PARTS and appends their records to
``RUN_DIR/records``. Standard output is a stream of JSON lines, one per step. With ``live`` samples
are among them, and commands are taken from ``RUN_DIR/live/commands.jsonl``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

from geokv import foreign
from geokv.clock import now_ns
from geokv.coordinator.cells import CellRunner
from geokv.coordinator.drill.runner import DrillRunner
from geokv.coordinator.ground import Ground
from geokv.coordinator.live.aside import Aside
from geokv.coordinator.live.desk import Desk
from geokv.coordinator.live.inbox import Inbox
from geokv.coordinator.meter import metering
from geokv.coordinator.timers import late_timers
from geokv.errors import GeokvError
from geokv.lab.build import Lab
from geokv.live.send import commands_path
from geokv.scenario.load import read_back
from geokv.site.history import unwritable


def progress(event: str, **more: Any) -> None:
    """One line on standard output, written at once: what is going on now."""
    sys.stdout.write(json.dumps({"event": event, "t_ns": now_ns(), **more}) + "\n")
    sys.stdout.flush()


def run_part(
    run_dir: Path,
    part: int,
    parts: int,
    watch: Callable[[Lab], AbstractContextManager[Any]] = nullcontext,
    *,
    live: bool = False,
) -> None:
    """Run this part's cells.

    Args:
        live: tell samples, and take commands.
        watch: entered with the built lab before a site starts, left after the last cell.

    Raises:
        GeokvError: the lab or a site could not be made, or a record not be written.
    """
    scenario = read_back(run_dir / "scenario.yaml")
    foreign.use_folders(scenario.code)
    cells = [cell for cell in scenario.cells() if cell.index % parts == part]
    records = run_dir / "records"

    def write(name: str, row: dict[str, Any]) -> None:
        _append(records / f"{name}-{part}.jsonl", row)

    desk = Desk(Inbox(commands_path(run_dir)), progress) if live else None
    if scenario.is_drill:
        with late_timers(scenario.clock) as timers:
            drill = DrillRunner(scenario, records, progress, watch, desk, timers)
            for cell in cells:
                drill.run(cell)
        return
    with (
        Ground(scenario, records, str(part), progress, watch) as ground,
        metering(scenario, records / f"power-{part}.jsonl", ground.pids),
        late_timers(scenario.clock) as timers,
        ExitStack() as open_,
    ):
        aside = open_.enter_context(Aside(desk, progress)) if desk is not None else None
        for cell in cells:
            if aside is not None:
                aside.rest()
            lab, fleet = ground.move_to(cell)
            if aside is not None:
                aside.watch(lab, fleet)
            CellRunner(scenario, cell, lab, fleet, write, progress, timers).run()
        stats = ground.stats()
    (records / f"stats-{part}.json").write_text(json.dumps(stats), encoding="utf-8")


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


def main() -> None:
    """``python -m geokv.coordinator.run RUN_DIR PART PARTS [live]``, inside the VM: one part."""
    try:
        live = sys.argv[4:] == ["live"]
        run_part(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), live=live)
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
