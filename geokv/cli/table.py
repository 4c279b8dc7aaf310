"""``geokv table``: a finished run's table again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def table(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    json_: Annotated[bool, typer.Option("--json", help="Print summary.json instead.")] = False,
) -> None:
    """Print the table and verdict of a finished run.

    The exit code is the run's verdict again.

    Examples:

      geokv table results/distance_ttft/20261129-203933-7cd85aa9
    """
    from geokv.report.console import print_run
    from geokv.report.run_folder import read_summary

    summary = read_summary(run)
    if json_:
        typer.echo(json.dumps(summary, ensure_ascii=False))
    else:
        print_run(summary)
    raise typer.Exit(int(summary["exit_code"]))
