"""The part of ``geokv capture`` that happens inside: one cell of a scenario, with an eye on
a link.

    python -m geokv.coordinator.capture WORK_DIR LINK FILE OPTIONS

``WORK_DIR`` is a run folder; ``OPTIONS`` is JSON: ``cell``, ``site``, ``everything`` (all
packets and not only those of KV servers), ``most_bytes``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from geokv.coordinator.deploy import KV_PORT
from geokv.coordinator.run import progress, run_part
from geokv.errors import ConfigError, GeokvError
from geokv.lab.build import Lab
from geokv.lab.capture import LinkCapture
from geokv.scenario.load import read_back


def capture_cell(work: Path, link: str, path: Path, options: dict[str, Any]) -> None:
    """Run one cell and write what crosses ``link`` to ``path``.

    Raises:
        GeokvError: no such link or cell, or the lab, a site or the file failed.
    """
    cells = read_back(work / "scenario.yaml").cells()
    number = options["cell"]
    if not 0 <= number < len(cells):
        raise ConfigError(f"--cell: {number} is not one of 0 to {len(cells) - 1}")
    seen: list[LinkCapture] = []

    def watch(lab: Lab) -> LinkCapture:
        port = None if options["everything"] else KV_PORT
        most = options["most_bytes"]
        eye = LinkCapture(lab, link, path, site=options["site"], port=port, most_bytes=most)
        seen.append(eye)
        return eye

    run_part(work, number, len(cells), watch)
    progress("captured", packets=seen[0].packets, text=str(seen[0]), label=cells[number].label)


def main() -> None:
    """``python -m geokv.coordinator.capture``: inside the VM, one cell whose packets are kept."""
    try:
        capture_cell(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4]))
    except GeokvError as error:
        progress("error", message=error.message, hint=error.hint, exit_code=error.exit_code)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
