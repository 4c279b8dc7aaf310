"""The part of ``geokv check`` that happens inside: build a lab, measure every link twice.

    python -m geokv.coordinator.check TOPOLOGY.yaml BYTE_SCALE CLOCK

Standard output is one JSON line per link: our probes' result and the second opinion of
ping and iperf3.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import get_args

from geokv.config import load_yaml
from geokv.errors import GeokvError
from geokv.lab.build import Lab
from geokv.lab.check import Clock, check_link, wait_idle
from geokv.lab.independent import second_opinion
from geokv.lab.plan import compile_plan
from geokv.lab.topology import load_topology


def check_topology(path: Path, byte_scale: int, clock: Clock) -> None:
    """Measure every link of the topology and print one line each."""
    plan = compile_plan(load_topology(load_yaml(path)), byte_scale)
    with Lab.build(plan) as lab:
        for link in plan.links:
            ours = check_link(lab, link, quick=False, clock=clock)
            wait_idle(lab, link)
            theirs = second_opinion(lab, link, clock=clock)
            row = {
                "event": "link",
                **ours.record(),
                "second_opinion": theirs.record(),
                "mean_loss": lab.link_plan(link).mean_loss,
            }
            print(json.dumps(row), flush=True)


def main() -> None:
    """``python -m geokv.coordinator.check``: inside the VM, every link of one topology."""
    clock = next(name for name in get_args(Clock) if name == sys.argv[3])
    try:
        check_topology(Path(sys.argv[1]), int(sys.argv[2]), clock)
    except GeokvError as error:
        print(
            json.dumps(
                {
                    "event": "error",
                    "message": error.message,
                    "hint": error.hint,
                    "exit_code": error.exit_code,
                }
            ),
            flush=True,
        )
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
