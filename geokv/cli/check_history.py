"""``geokv check-history``: the checkers once more, over the history of any finished run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def check_history(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    json_: Annotated[
        bool, typer.Option("--json", help="Print findings with their whole events as JSON.")
    ] = False,
) -> None:
    """Look for what must never happen in the history of a run, by that history alone.

    Of a drill every cell is checked; the control cell, which is broken on purpose, is shown and
    does not count. Of a measurement run a history holds only what sites did to chunks, and what
    needs more than that is unknown.

    The exit code, as of a run: 0 nothing is wrong, 1 something is, 3 a link was off its plan or, in
    real time, the machine did not keep up, 4 something cannot be known.

    Examples:

      geokv check-history results/link-cut/20261130-101500-7cd85aa9
    """
    from geokv.measure.drill.recheck import recheck
    from geokv.report.drill_console import print_recheck

    checked = recheck(run)
    if json_:
        typer.echo(json.dumps(checked, ensure_ascii=False))
    else:
        print_recheck(checked)
    raise typer.Exit(_exit_code(checked))


def _exit_code(checked: dict[str, Any]) -> int:
    from geokv.measure.verdict import EXIT_CODES

    return EXIT_CODES[checked["verdict"]]
