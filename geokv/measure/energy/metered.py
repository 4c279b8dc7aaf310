"""What meters said in the time of each request, and which grade a run's joules have.

A sample's stamp is on the clock of the requests' stamps, so a window of a request is cut out of
the samples directly: counters (RAPL's µJ, processor ns) are interpolated between the samples
around both ends, power (NVML's mW) is integrated by trapezoids over the window.

    prefill window = [sent + queue … load spans, + prefill]
    decode window  = [end of prefill, + decode]
    idle           = median of the samples that lie in no request's time

What a meter says is of this machine and of the model that ran; the proxy beside it is of the
deployment the run stands for. The two agree only where both are the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec

from geokv.errors import RunError
from geokv.measure.energy.constants import Constants
from geokv.measure.records import Manifest, Request
from geokv.scenario import Scenario
from geokv.units import NS_PER_S

_VIRTUAL = "processor work takes no time under the virtual clock, and there is no meter inside"


class MeterHead(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a meter's record."""

    grade: str
    period_ns: int
    why: dict[str, str]
    gpus: list[str]
    zones: list[str]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """All meters at one moment; counters count from the start of the record."""

    t_ns: int
    cpu_ns: dict[str, int]
    rapl_uj: int | None
    gpu_mw: list[int]


class Meter:
    """The samples of one part of a run, in order of time."""

    def __init__(self, head: MeterHead, samples: Sequence[Sample]) -> None:
        self.head = head
        self._times = [one.t_ns for one in samples]
        self._cpu_s = [sum(one.cpu_ns.values()) / NS_PER_S for one in samples]
        self._rapl_j = [None if one.rapl_uj is None else one.rapl_uj / 1e6 for one in samples]
        self._gpu_w = [sum(one.gpu_mw) / 1e3 for one in samples]

    def covers(self, start_ns: int, end_ns: int) -> bool:
        """Whether there are samples on both sides of a window."""
        times = self._times
        return len(times) > 1 and times[0] <= start_ns and end_ns <= times[-1]

    def cpu_s(self, start_ns: int, end_ns: int) -> float:
        """Processor time of all sites in a window, seconds."""
        return self._at(self._cpu_s, end_ns) - self._at(self._cpu_s, start_ns)

    def rapl_j(self, start_ns: int, end_ns: int) -> float | None:
        """Joules of all processor packages in a window; None without that meter."""
        values = [value for value in self._rapl_j if value is not None]
        if len(values) != len(self._times) or not values:
            return None
        return self._at(values, end_ns) - self._at(values, start_ns)

    def gpu_j(self, start_ns: int, end_ns: int) -> float:
        """Joules of all GPUs in a window: their watts, by trapezoids."""
        first, last = bisect_right(self._times, start_ns), bisect_left(self._times, end_ns)
        points = [
            (start_ns, self._at(self._gpu_w, start_ns)),
            *zip(self._times[first:last], self._gpu_w[first:last], strict=True),
            (end_ns, self._at(self._gpu_w, end_ns)),
        ]
        return sum(
            (later - earlier) / NS_PER_S * (low + high) / 2
            for (earlier, low), (later, high) in pairwise(points)
        )

    def idle_w(self, busy: Sequence[tuple[int, int]]) -> float | None:
        """Median watts of the GPUs in samples that no window holds; None without any."""
        held = set[int]()
        for start_ns, end_ns in busy:
            first, last = bisect_left(self._times, start_ns), bisect_right(self._times, end_ns)
            held.update(range(first, last))
        left = [watts for number, watts in enumerate(self._gpu_w) if number not in held]
        return median(left) if left else None

    def _at(self, values: Sequence[float], t_ns: int) -> float:
        after = min(max(bisect_left(self._times, t_ns), 1), len(self._times) - 1)
        before = after - 1
        span = self._times[after] - self._times[before]
        share = (t_ns - self._times[before]) / span if span else 0.0
        return values[before] + min(max(share, 0.0), 1.0) * (values[after] - values[before])


def metered(
    run_dir: Path,
    scenario: Scenario,
    manifest: Manifest,
    by_cell: Mapping[int, Sequence[Request]],
    by_point: Mapping[int, Sequence[Request]],
    numbers: Constants,
) -> dict[str, Any]:
    """``grade``, ``grades`` (why the others are not it) and ``measured`` of a run.

    Args:
        by_cell: number of a cell → all its requests: while one is there, no GPU is at rest.
        by_point: number of a valid point's first cell → the requests of all its seeds; a void cell
            has no joules (INV-7).

    Raises:
        RunError: a meter's record that is not one.
    """
    meters = load_meters(run_dir)
    if not meters:
        return not_metered(manifest, "energy.grade is constants")
    head = next(iter(meters.values())).head
    rapl = "RAPL of " + ", ".join(head.zones) if head.zones else "processor time x core_w"
    grades = {"constants": "shown beside it", "cpu": rapl}
    if "rapl" in head.why:
        grades["cpu"] += f" (RAPL: {head.why['rapl']})"
    grades["nvml"] = head.why.get("nvml", "power of " + ", ".join(head.gpus))
    parts = max(meters) + 1
    idle_w: list[float] = []
    for part, meter in meters.items():
        asked = [row for cell, found in by_cell.items() if cell % parts == part for row in found]
        idle = meter.idle_w([(row.sent_ns, row.done_ns) for row in asked])
        if meter.head.gpus and idle is not None:
            idle_w.append(idle)

    def arms(rows: Sequence[Request]) -> dict[str, dict[str, float | int | None]]:
        timed = [row for row in rows if row.arm in scenario.arms and row.timed and not row.warmup]
        found: dict[str, list[dict[str, float | None]]] = {}
        for row in timed:
            if (meter := meters.get(row.cell % parts)) is not None:
                found.setdefault(row.arm, []).append(_one(meter, row, numbers))
        return {arm.replace("-", "_"): _mean(ones) for arm, ones in found.items()}

    return {
        "grade": head.grade,
        "grades": grades,
        "measured": {
            "of": manifest.model,
            "meter": "nvml" if head.gpus else "rapl" if head.zones else "cpu-time",
            "gpu_idle_w": round(fmean(idle_w), 3) if idle_w else None,
            "cells": [{"cell": cell, "arms": arms(rows)} for cell, rows in by_point.items()],
        },
    }


def not_metered(manifest: Manifest, why: str) -> dict[str, Any]:
    """The same of a run that has no meter's records.

    Args:
        why: under a wall clock; under the virtual one there is none in any case.
    """
    if manifest.clock == "virtual":
        why = _VIRTUAL
    return {
        "grade": "constants",
        "grades": {"constants": "used", "cpu": why, "nvml": why},
        "measured": None,
    }


def load_meters(run_dir: Path) -> dict[int, Meter]:
    """Part of a run → its meter; empty for a run without.

    Raises:
        RunError: a line that is not a record.
    """
    found = {}
    for path in sorted((run_dir / "records").glob("power-*.jsonl")):
        lines = path.read_bytes().splitlines()
        try:
            head = msgspec.json.decode(lines[0], type=MeterHead)
            samples = [msgspec.json.decode(line, type=Sample) for line in lines[1:]]
            part = int(path.stem.removeprefix("power-"))
        except (msgspec.MsgspecError, IndexError, ValueError) as error:
            raise RunError(f"{path}: not a meter's record ({error})") from None
        found[part] = Meter(head, samples)
    return found


def _one(meter: Meter, row: Request, numbers: Constants) -> dict[str, float | None]:
    """Of one request; nothing where the samples do not cover it."""
    if row.spans is None or not meter.covers(row.sent_ns, row.done_ns):
        return {}
    cpu_s = meter.cpu_s(row.sent_ns, row.done_ns)
    cpu_j = meter.rapl_j(row.sent_ns, row.done_ns)
    if cpu_j is None:
        cpu_j = cpu_s * numbers.core_w.value
    found: dict[str, float | None] = {"cpu_s": cpu_s, "cpu_j": cpu_j, "energy_j": cpu_j}
    if meter.head.gpus:
        spans = row.spans
        prefilled_ns = row.sent_ns + spans.total_ns - spans.first_byte_ns
        started_ns = prefilled_ns - spans.prefill_ns
        ended_ns = min(prefilled_ns + row.decode_ns, row.done_ns)
        gpu_j = meter.gpu_j(row.sent_ns, row.done_ns)
        found |= {"gpu_j": gpu_j, "energy_j": cpu_j + gpu_j}
        found["gpu_prefill_w"] = _watts(meter, started_ns, prefilled_ns)
        found["gpu_decode_w"] = _watts(meter, prefilled_ns, ended_ns)
    found["output_tokens"] = len(row.output_ids)
    return found


def _watts(meter: Meter, start_ns: int, end_ns: int) -> float | None:
    if end_ns <= start_ns:
        return None
    return meter.gpu_j(start_ns, end_ns) * NS_PER_S / (end_ns - start_ns)


def _mean(rows: Sequence[Mapping[str, float | None]]) -> dict[str, float | int | None]:
    """Mean of each thing over the requests that have it, and how many those are."""
    found: dict[str, float | int | None] = {"n": sum(1 for row in rows if row)}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [value for row in rows if (value := row.get(name)) is not None]
        found[name] = round(fmean(values), 6) if values else None
    energy_j, tokens = found.get("energy_j"), found.pop("output_tokens", None)
    if energy_j is not None and tokens:
        found["j_per_output_token"] = round(energy_j / tokens, 6)
    return found
