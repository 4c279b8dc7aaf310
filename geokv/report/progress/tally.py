"""How far a run is, and how long it will take: counted from its steps, whoever shows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from geokv.report.progress.plan import CellPlan, RunPlan
from geokv.report.progress.steps import say
from geokv.units import NS_PER_S

_LEAST_REQUESTS = 2
"""Of one cell, before they say anything about the others."""


@dataclass
class VmTally:
    """One VM (or the host) and the cell it is in.

    Attributes:
        said: what it does, in words.
        began_s: real time at which its cell began.
        done: requests of its cell by arm, with warm-ups; ``counted`` those whose times count.
        last_ttft_ms: of the latest answer.
        first_ns, now_ns: stamps of its own clock: of its first step and its latest.
        real_s: real time at which the first of these was seen.
        finished: numbers of the cells it has behind it.
    """

    part: int
    said: str = ""
    cell: CellPlan | None = None
    arm: str = ""
    began_s: float = 0.0
    done: dict[str, int] = field(default_factory=dict)
    counted: int = 0
    last_ttft_ms: float | None = None
    first_ns: int | None = None
    now_ns: int = 0
    real_s: float = 0.0
    finished: list[int] = field(default_factory=list)

    @property
    def own_s(self) -> float:
        """Seconds that have passed on its own clock since its first step."""
        return 0.0 if self.first_ns is None else (self.now_ns - self.first_ns) / NS_PER_S

    @property
    def share(self) -> float:
        """Of its cell's requests, how many are over, from 0 to 1."""
        if self.cell is None:
            return 0.0
        return min(1.0, sum(self.done.values()) / (self.cell.asked + self.cell.warmups))


class Tally:
    """Takes steps, and answers what is known so far.

    Args:
        clock: real seconds; another one in tests.
    """

    def __init__(self, plan: RunPlan, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan = plan
        self.said = "starting"
        self.asked = 0
        self.vms: dict[int, VmTally] = {}
        self.parts = 1
        self.over = False
        self._clock = clock
        self._start_s = clock()
        self._took_s: list[float] = []

    @property
    def elapsed_s(self) -> float:
        """Real seconds since it was made."""
        return self._clock() - self._start_s

    @property
    def cells_done(self) -> int:
        """How many cells have come to their end, of all VMs."""
        return len(self._took_s)

    def take(self, step: dict[str, Any]) -> None:
        """Count one step. What no step of another version should have is left alone."""
        event = step["event"]
        self.said = say(step) or self.said
        if event == "folder":
            self.parts = step["parts"]
        elif event == "report":
            self.over = True
            for vm in self.vms.values():
                self._finish(vm)
        if "part" not in step:
            return
        vm = self.vms.setdefault(step["part"], VmTally(step["part"]))
        self._stamp(vm, step)
        if event == "cell":
            self._finish(vm)
            self._begin(vm, step["cell"])
        if event == "request":
            self._request(vm, step)
        elif words := say(step):
            vm.said = words

    def left_s(self) -> float | None:
        """Real seconds until the last request, estimated; None while nothing is known.

        Cells to come are taken to last as long as those that are over, or as the one that
        runs will by its finished requests. VMs share the cells in turn, so the last one counts.
        """
        if self.over:
            return None
        longest: float | None = None
        for part in range(self.parts):
            mine = [cell for cell in self.plan.cells if cell.index % self.parts == part]
            left = self._left_of(self.vms.get(part), mine)
            if left is None:
                return None
            longest = left if longest is None else max(longest, left)
        return longest

    def _left_of(self, vm: VmTally | None, mine: list[CellPlan]) -> float | None:
        mean_s = sum(self._took_s) / len(self._took_s) if self._took_s else None
        begun = set(vm.finished) if vm is not None else set()
        rest_s = 0.0
        if vm is not None and vm.cell is not None:
            begun.add(vm.cell.index)
            spent_s, share = self._clock() - vm.began_s, vm.share
            if mean_s is not None and spent_s < mean_s:
                rest_s = mean_s * (1 - share)
            elif sum(vm.done.values()) >= _LEAST_REQUESTS:
                rest_s = spent_s * (1 - share) / share
                mean_s = mean_s or spent_s / share
            else:
                return None
        to_come = len([cell for cell in mine if cell.index not in begun])
        if not to_come:
            return rest_s
        return None if mean_s is None else rest_s + to_come * mean_s

    def _stamp(self, vm: VmTally, step: dict[str, Any]) -> None:
        if (t_ns := step.get("t_ns")) is None:
            return
        if vm.first_ns is None:
            vm.first_ns, vm.real_s = t_ns, self._clock()
        vm.now_ns = max(vm.now_ns, t_ns)

    def pace(self, vm: VmTally) -> float | None:
        """Seconds of the VM's own clock per real second; None in its first moments."""
        since_s = self._clock() - vm.real_s
        return vm.own_s / since_s if vm.first_ns is not None and since_s > 0.1 else None

    def _begin(self, vm: VmTally, index: int) -> None:
        vm.cell = next((cell for cell in self.plan.cells if cell.index == index), None)
        vm.arm, vm.done, vm.counted, vm.began_s = "", {}, 0, self._clock()

    def _finish(self, vm: VmTally) -> None:
        if vm.cell is None:
            return
        self._took_s.append(self._clock() - vm.began_s)
        vm.finished.append(vm.cell.index)
        vm.cell = None

    def _request(self, vm: VmTally, step: dict[str, Any]) -> None:
        arm = step.get("arm", "stream")
        vm.said = "asking"
        vm.arm = arm
        if arm == "prepare":
            vm.said = "preparing caches"
            return
        vm.done[arm] = vm.done.get(arm, 0) + 1
        ttft_ns = step.get("ttft_ns")
        vm.last_ttft_ms = step.get("ttft_ms") if ttft_ns is None else ttft_ns / 1e6
        if not step.get("warmup", False):
            vm.counted += 1
            self.asked += 1
