"""What a run has before it, counted before it begins."""

from __future__ import annotations

from dataclasses import dataclass

from geokv.scenario import Scenario


@dataclass(frozen=True)
class CellPlan:
    """One cell.

    Attributes:
        arms: names in the order they are run; of a drill one, ``stream``.
        asked: requests whose times count, of all arms.
        warmups: requests before these that do not.
    """

    index: int
    label: str
    arms: tuple[str, ...]
    asked: int
    warmups: int


@dataclass(frozen=True)
class RunPlan:
    """All cells of a run.

    Attributes:
        virtual: whether its time is the VM's own.
    """

    name: str
    virtual: bool
    cells: tuple[CellPlan, ...]

    @property
    def asked(self) -> int:
        """Requests whose times count, in all cells."""
        return sum(cell.asked for cell in self.cells)


def plan_of(scenario: Scenario) -> RunPlan:
    """Cells, arms and requests of a scenario."""
    cells = []
    for cell in scenario.cells():
        one = cell.scenario
        arms = ("stream",) if one.is_drill else tuple(one.arms)
        warmups = 0 if one.is_drill else one.workload.warmup * len(arms)
        asked = one.workload.requests * len(arms)
        cells.append(CellPlan(cell.index, cell.label, arms, asked, warmups))
    return RunPlan(scenario.name, scenario.clock == "virtual", tuple(cells))
