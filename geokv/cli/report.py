"""``geokv report``: the outputs of a finished run again, from its records."""

from __future__ import annotations

import os
import webbrowser
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from geokv.cli.run_folder import require_run
from geokv.errors import ConfigError, GeokvError, RunError


class Wanted(StrEnum):
    """What ``--format`` takes."""

    html = "html"
    md = "md"
    csv = "csv"
    parquet = "parquet"
    latex = "latex"
    all = "all"


_NAMES = {
    "html": ("report.html",),
    "md": ("report.md", "table.md"),
    "csv": ("table.csv",),
    "parquet": ("requests.parquet",),
    "latex": ("table.tex",),
}


def report(
    run: Annotated[Path, typer.Argument(help="A run folder, of geokv run or geokv drill.")],
    formats: Annotated[
        list[Wanted] | None,
        typer.Option("--format", "-f", help="Which to write; can be repeated. Default: all."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
) -> None:
    """Write the page and tables of a finished run again, from its records.

    report.html is one file that needs nothing else: question, verdict, table, figures, set-up,
    how far to trust the numbers, and the command that does it again. report.md is the same as
    Markdown; table.csv, table.md and table.tex (booktabs) have a row per cell, requests.parquet
    has one per request. summary.json is reduced anew as well, by the geokv that is installed.

    Examples:

      geokv report results/distance_ttft/20261129-203933-7cd85aa9 --open

      geokv report results/link-cut/20261129-204500-3532276f --format latex

      geokv report results/smoke/20261129-203933-555282af -f md -f csv
    """
    from geokv.report.outputs import FORMATS, write_outputs
    from geokv.report.run_folder import read_summary

    require_run(run)
    if not os.access(run, os.W_OK):
        raise ConfigError(
            f"{run}: cannot be written to", "copy the run folder to where you may write"
        )
    asked = {str(one) for one in formats or [Wanted.all]}
    chosen = [one for one in FORMATS if one in asked or "all" in asked]
    if open_ and "html" not in chosen:
        raise ConfigError("--open: shows report.html", "add --format html, or leave --format out")
    try:
        before = str(read_summary(run)["verdict"])
    except GeokvError:
        before = ""
    summary = write_outputs(run, chosen)
    for one in chosen:
        for name in _NAMES[one]:
            typer.echo(run / name)
    if before not in ("", summary["verdict"]):
        typer.echo(f"verdict: {summary['verdict']} now, {before} before", err=True)
    if open_ and not webbrowser.open((run / "report.html").resolve().as_uri()):
        raise RunError(
            "--open: no browser could be started", f"open {run / 'report.html'} yourself"
        )
