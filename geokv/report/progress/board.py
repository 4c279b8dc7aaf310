"""Progress on a terminal: one bar, and a row per VM with the cell and the arm it is in."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import (
    Console,
    ConsoleOptions,
    Group,
    JustifyMethod,
    RenderableType,
    RenderResult,
)
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from geokv.report.progress.plan import RunPlan
from geokv.report.progress.steps import clock_words
from geokv.report.progress.tally import Tally, VmTally

_BAR_MOST, _BAR_LEAST = 40, 8
_ROOM_FOR_PACE, _ROOM_FOR_TTFT = 76, 92
"""Columns of a terminal from which on these are shown."""
_WHERE, _DOING = 1, 2
"""Columns of a row: the cell, and what is done in it."""
_WHERE_LEAST, _DOING_MOST, _GAP = 6, 28, 2
_ROWS_MOST = 12


class Board:
    """A live view that is gone when the run is over; its result stands alone then."""

    def __init__(
        self, plan: RunPlan, console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tally = Tally(plan, clock)
        self._live = Live(
            self, console=console, refresh_per_second=4, transient=True, redirect_stdout=False
        )

    def __enter__(self) -> Board:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def take(self, step: dict[str, Any]) -> None:
        """Count one step; it is shown at the next refresh."""
        self.tally.take(step)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.render(options.max_width)

    def render(self, width: int) -> RenderableType:
        """What stands there now, in ``width`` columns."""
        parts: list[RenderableType] = [self._head(width)]
        vms = [self.tally.vms[part] for part in sorted(self.tally.vms)]
        if vms and not self.tally.over:
            parts.append(self._rows(vms[:_ROWS_MOST], width))
            if len(vms) > _ROWS_MOST:
                parts.append(Text(f"  and {len(vms) - _ROWS_MOST} VMs more", style="dim"))
        return Group(*parts)

    def _head(self, width: int) -> RenderableType:
        tally, plan = self.tally, self.tally.plan
        left_s = tally.left_s()
        counts = [f"{tally.asked}/{plan.asked} requests"]
        if len(plan.cells) > 1:
            counts.append(f"{tally.cells_done}/{len(plan.cells)} cells")
        counts.append(clock_words(tally.elapsed_s))
        if left_s is not None:
            counts.append(f"≈ {clock_words(left_s)} left")
        elif tally.over or not tally.asked:
            counts.append(tally.said)
        said = " · ".join(counts)
        grid = Table.grid(padding=(0, 1, 0, 0))
        name = Text(plan.name, style="bold", no_wrap=True, overflow="ellipsis")
        beside = width - len(plan.name) - len(said) - 3
        if beside >= _BAR_LEAST:
            grid.add_row(name, self._bar(beside), Text(said))
            return grid
        grid.add_row(name, self._bar(width - len(plan.name) - 2))
        return Group(grid, Text(said, no_wrap=True, overflow="ellipsis"))

    def _bar(self, room: int) -> ProgressBar:
        columns = max(_BAR_LEAST, min(_BAR_MOST, room))
        return ProgressBar(self.tally.plan.asked, self.tally.asked, width=columns)

    def _rows(self, vms: list[VmTally], width: int) -> Table:
        rows = [self._row(vm, width) for vm in vms]
        widest = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        # Only what may be long gives way: a cell's name first, then a fault's.
        widest[_DOING] = min(widest[_DOING], _DOING_MOST)
        rest = sum(widest) - widest[_WHERE] + _GAP * len(widest)
        widest[_WHERE] = min(widest[_WHERE], max(_WHERE_LEAST, width - rest))
        table = Table.grid(padding=(0, _GAP, 0, 0))
        for column, columns in enumerate(widest):
            justify: JustifyMethod = "right" if column > _DOING else "left"
            table.add_column(no_wrap=True, overflow="ellipsis", max_width=columns, justify=justify)
        for row in rows:
            table.add_row(*row)
        return table

    def _row(self, vm: VmTally, width: int) -> list[str]:
        who = f"  VM {vm.part}" if self.tally.parts > 1 else " "
        where = vm.cell.label if vm.cell is not None else ""
        doing = vm.said if vm.said != "asking" else vm.arm
        return [
            who, where, doing, self._done(vm), self._ttft(vm, width), self._time(vm, width)
        ]  # fmt: skip

    def _ttft(self, vm: VmTally, width: int) -> str:
        ms = vm.last_ttft_ms
        return "" if ms is None or width < _ROOM_FOR_TTFT else f"TTFT {ms:.2f} ms"

    def _done(self, vm: VmTally) -> str:
        """Of the arm it is in, or of the stream."""
        if vm.cell is None or vm.arm not in vm.cell.arms:
            return ""
        each = (vm.cell.asked + vm.cell.warmups) // len(vm.cell.arms)
        return f"{vm.done.get(vm.arm, 0)}/{each}"

    def _time(self, vm: VmTally, width: int) -> str:
        if not self.tally.plan.virtual:
            return ""
        said = f"{vm.own_s:.1f} s virtual"
        pace = self.tally.pace(vm)
        if pace is None or width < _ROOM_FOR_PACE:
            return said
        return f"{said} ({pace:.2g} × real)"
