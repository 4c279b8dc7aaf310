"""Which meters a run has, and a thread that writes down what they say every 10 ms.

Under the virtual clock there is none: processor work takes no time there, and a thread that
wakes would be part of what is measured. Under a wall clock the thread costs this machine some
thousandths of one processor.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from geokv.clock import now_ns
from geokv.coordinator.meter.cpu_time import CpuTime
from geokv.coordinator.meter.nvml import Nvml
from geokv.coordinator.meter.rapl import Rapl
from geokv.errors import ConfigError, GeokvError, MeterError
from geokv.scenario import Scenario
from geokv.scenario.energy import Grade
from geokv.site.history import unwritable

PERIOD_S = 0.01
"""TokenPowerBench polls NVML and RAPL every 10 ms (arXiv 2512.03024)."""
_END_DEADLINE_S = 5.0


class Meters:
    """What can be read here, and why the rest cannot.

    Attributes:
        grade: the best that is at hand, or what the scenario asks for.
        why: meter → why it is not read.

    Raises:
        ConfigError: the scenario asks for a grade that this machine cannot give.
    """

    def __init__(
        self,
        asked: Grade | None,
        open_nvml: Callable[[], Nvml] = Nvml,
        open_rapl: Callable[[], Rapl] = Rapl,
    ) -> None:
        self.why: dict[str, str] = {}
        self.nvml: Nvml | None = None
        self.rapl: Rapl | None = None
        self.cpu = CpuTime()
        if asked == "cpu":
            self.why["nvml"] = "energy.grade is cpu"
        else:
            try:
                self.nvml = open_nvml()
            except MeterError as error:
                self.why["nvml"] = str(error)
        try:
            self.rapl = open_rapl()
        except MeterError as error:
            self.why["rapl"] = str(error)
        self.grade: Grade = "nvml" if self.nvml else "cpu"
        if asked == "nvml" and self.nvml is None:
            raise ConfigError(
                f"energy.grade: nvml: {self.why['nvml']}",
                "leave energy.grade out, or run where a GPU and its driver are",
            )

    def head(self) -> dict[str, Any]:
        """The first line of a record: who measured."""
        return {
            "grade": self.grade,
            "period_ns": round(PERIOD_S * 1e9),
            "why": self.why,
            "gpus": self.nvml.names if self.nvml else [],
            "zones": self.rapl.zones if self.rapl else [],
        }

    def sample(self, pids: dict[str, int]) -> dict[str, Any]:
        """What every meter says now; counters are since the start."""
        return {
            "t_ns": now_ns(),
            "cpu_ns": self.cpu.read_ns(pids),
            "rapl_uj": self.rapl.total_uj() if self.rapl else None,
            "gpu_mw": self.nvml.power_mw() if self.nvml else [],
        }

    def close(self) -> None:
        """Let go of what a meter holds open."""
        if self.nvml:
            self.nvml.close()


@contextmanager
def metering(
    scenario: Scenario,
    path: Path,
    pids: Callable[[], dict[str, int]],
    meters: Meters | None = None,
    end_deadline_s: float = _END_DEADLINE_S,
) -> Iterator[None]:
    """Write ``path`` while inside, a line per sample; do nothing where there is no meter.

    Args:
        pids: site → its process at this moment.
        meters: those to read, and closed after the last sample; None looks for this machine's.
        end_deadline_s: real seconds that the last sample may take.

    Raises:
        ConfigError: the scenario asks for a grade that this machine cannot give.
        MeterError: a meter stopped to be readable on the way, or does not answer at the end.
        RunError: the disk is full, or the folder has gone.
    """
    if scenario.clock == "virtual" or scenario.energy.grade == "constants":
        yield
        return
    meters = meters or Meters(scenario.energy.grade)
    ended = threading.Event()
    failed: list[GeokvError] = []
    # Without a buffer, so that a full disk is an error of the line that did not fit.
    stream = path.open("wb", buffering=0)

    def write(row: dict[str, Any]) -> None:
        try:
            stream.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            raise unwritable(path, error) from None

    def record() -> None:
        try:
            last = False
            while not last:
                last = ended.wait(PERIOD_S)
                write(meters.sample(pids()))
        except GeokvError as error:
            failed.append(error)
        finally:
            # Whoever reads closes: a library that is shut down under a call of its own crashes.
            meters.close()
            stream.close()

    thread = threading.Thread(target=record, name="meter", daemon=True)
    try:
        write(meters.head())
    except GeokvError:
        meters.close()
        stream.close()
        raise
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(end_deadline_s)
    if thread.is_alive():
        raise MeterError(
            f"a meter has not answered for {end_deadline_s:g} s; its samples end early"
        )
    if failed:
        raise failed[0]
