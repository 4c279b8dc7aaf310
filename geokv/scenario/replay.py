"""A run's cell as a scenario that replays its trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geokv.errors import ConfigError
from geokv.scenario.load import load_scenario, read_back
from geokv.scenario.model import Scenario
from geokv.scenario.substrate import FOREIGN

_TRACE = "trace.jsonl"
_KEPT_OF_A_DRILL = ("timeline", "expect")
_LEFT_OUT = ("arms", "expect", "figures", "timeline", "control", "translations", "routing", "seeds")
"""The trace says where each request went, whatever sent it there."""
_NAME_LENGTH = 64
_STOP = "stop"
"""By hand, too, and in the trace: it has no requests from there on."""


def replay_of(run_dir: Path, cell: int = 0, by_hand: Sequence[str] = ()) -> Scenario:
    """What ran in a cell, asked for what its trace says instead of what its workload would.

    Faults and promises of a drill stay. A measurement run is replayed as a stream: each request
    is sent when it was then. Whatever clock it ran by, a replay has the virtual one, which brings
    no chance of its own.

    Args:
        run_dir: of a finished run.
        by_hand: what was done in the cell while it ran (``measure.drill.by_hand``).

    Raises:
        ConfigError: no such cell; or it cannot be replayed (what needs the wall clock, a cell in
            which faults were made or healed by hand, a run whose prompts were not recorded).
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
    where = f"{{kind: trace, file: {trace}, cell: {cell}}}"
    if done := [command for command in by_hand if command != _STOP]:
        raise ConfigError(
            f"{run_dir}: what was done by hand in cell {cell} ({', '.join(done)}) is not in its "
            "trace, and without it nothing would hit as it did",
            f"replay its requests in a scenario with workload: {where}, and with such events in "
            "its timeline",
        )
    if why := _not_virtual(one.scenario):
        raise ConfigError(
            f"{run_dir}: a replay has the virtual clock, and {why}",
            f"replay its requests by the wall clock, in a scenario with workload: {where}",
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
    if run.clock == "wall":
        kept["title"] += " in virtual time"
        # Which has no meter that could be asked for.
        kept |= {"clock": "virtual", "energy": {**data["energy"], "grade": None}}
    return load_scenario({**kept, "workload": workload})


def _not_virtual(scenario: Scenario) -> str:
    """Why it runs by the wall clock only; empty where it does not."""
    kind = scenario.cache.substrate.kind
    if scenario.deployment.compute == "real":
        return "compute: real takes no time there"
    if kind in FOREIGN:
        return f"{kind}, which polls, would stop it"
    return ""
