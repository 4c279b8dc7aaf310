"""A run's cell as a scenario that replays its trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.errors import ConfigError
from geokv.scenario.load import load_scenario, read_back
from geokv.scenario.model import Scenario

_TRACE = "trace.jsonl"
_KEPT_OF_A_DRILL = ("timeline", "expect")
_LEFT_OUT = ("arms", "expect", "figures", "timeline", "control", "translations", "routing", "seeds")
"""The trace says where each request went, whatever sent it there."""
_NAME_LENGTH = 64


def replay_of(run_dir: Path, cell: int = 0) -> Scenario:
    """What ran in a cell, asked for what its trace says instead of what its workload would.

    Faults and promises of a drill stay. A measurement run is replayed as a stream: each request
    is sent when it was then.

    Args:
        run_dir: of a finished run.

    Raises:
        ConfigError: no such cell; or it cannot be replayed (a run by wall clock, a run whose
            prompts were not recorded).
    """
    trace = run_dir / _TRACE
    if not trace.is_file():
        raise ConfigError(f"{trace}: there is no trace", "give the folder of a finished run")
    run = read_back(run_dir / "scenario.yaml")
    cells = run.cells()
    if not 0 <= cell < len(cells):
        raise ConfigError(f"{run_dir}: has cells 0 to {len(cells) - 1}, no cell {cell}")
    one = cells[cell]
    if one.control is not None:
        raise ConfigError(
            f"{run_dir}: cell {cell} is the drill's control, whose sites were broken on purpose",
            "replay another cell",
        )
    data = one.scenario.resolved()
    dropped = [key for key in _LEFT_OUT if not (run.is_drill and key in _KEPT_OF_A_DRILL)]
    kept = {key: value for key, value in data.items() if key not in dropped}
    workload: dict[str, Any] = {
        "kind": "trace",
        "file": str(trace.absolute()),
        "cell": cell,
        "deadline": one.scenario.workload.deadline,
    }
    quiesce = getattr(one.scenario.workload, "quiesce", None)
    if quiesce is not None:
        workload["quiesce"] = quiesce
    kept["name"] = f"{run.name[: _NAME_LENGTH - len('-replay')]}-replay"
    kept["title"] = f"{run.title}, replayed from its trace"
    return load_scenario({**kept, "workload": workload})
