"""Write the traces of a run to a file that collectors and Jaeger's page take."""

from __future__ import annotations

import json
from pathlib import Path

from geokv.report.disk import saving
from geokv.report.otlp.asked import asked_in
from geokv.report.otlp.encode import trace_of
from geokv.units import NS_PER_S
from geokv.vm.boot import START_OF_TIME_S


def write_otlp(run_dir: Path, path: Path, begin_ns: int | None = None) -> int:
    """Traces as lines of JSON (the OTLP file exporter's format), a very long one as several;
    returns how many traces.

    Args:
        begin_ns: when, since 1970, the first request is said to have been sent. None is what a
            guest's own clock said in virtual time, which starts at 2026-01-01 00:00 UTC.

    Raises:
        ConfigError: no such run, or ``path`` cannot be written.
        RunError: the run has no records, or a broken one, or the disk is full.
    """
    scenario, rows = asked_in(run_dir)
    asked = list(rows)
    zero_ns = START_OF_TIME_S * NS_PER_S
    if begin_ns is not None and asked:
        zero_ns = begin_ns - min(one.sent_ns for one in asked)
    with saving(path), path.open("w", encoding="utf-8") as out:
        for one in asked:
            for message in trace_of(scenario, one, zero_ns):
                out.write(json.dumps(message, separators=(",", ":"), allow_nan=False) + "\n")
    return len(asked)
