"""The engine against transformers, against its own bookkeeping and against the best hit rate.

    python tests/bench/engine.py [float32] [bfloat16] [overhead] [hits]

Everything is a ratio within this run: same weights, same prompts, one thread, ours and
theirs in turn. Exit status 1 when a bar is missed; on a machine that is busy with other
things the ratios scatter, which the last line then says.
"""

from __future__ import annotations

import os
import sys
import warnings
from functools import partial

import torch
from engine_hits import measure_hits
from engine_overhead import measure_overhead
from engine_speed import measure_speed
from rich.console import Console
from rich.table import Table

PARTS = {
    "float32": partial(measure_speed, torch.float32),
    "bfloat16": partial(measure_speed, torch.bfloat16),
    "overhead": measure_overhead,
    "hits": measure_hits,
}


def main(wanted: list[str]) -> int:
    if unknown := set(wanted) - set(PARTS):
        print(f"unknown part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
        return 2
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    busy = [os.getloadavg()[0]]
    table = Table("what", "ours", "against", "ratio", "bar", "")
    missed = 0
    for name in wanted or PARTS:
        for line in PARTS[name]():
            missed += not line.holds
            verdict = "" if line.bar is None else "ok" if line.holds else "MISSED"
            table.add_row(line.what, line.ours, line.against, line.shown, line.bar or "", verdict)
        busy.append(os.getloadavg()[0])
    Console(width=120).print(table)
    # One is this process itself, once it has run for a minute.
    if max(busy) > 1.5:
        print(f"the machine was not quiet: load {' → '.join(f'{load:.1f}' for load in busy)}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
