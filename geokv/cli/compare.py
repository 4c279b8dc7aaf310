"""``geokv compare``: finished runs beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from geokv.cli.run_folder import require_run


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; the first is the base.")],
    force: Annotated[
        bool, typer.Option("--force", help="Compare different set-ups too, and mark it.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page as well.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write a row per pair as well.")
    ] = None,
) -> None:
    """Say in which cells and arms the first token comes sooner or later, and how surely.

    Runs are paired cell by cell and arm by arm. Each ratio of medians has an interval and a
    test behind it; what is not significant is called that. Runs whose set-ups differ are
    refused with the first difference.

    The exit code is 0 whatever differs, and 2 for what cannot be compared.

    Examples:

      geokv compare before after

      geokv compare results/distance_ttft/* --html compare.html --csv compare.csv

      geokv compare cubic bbr --force
    """
    from geokv.report.compare.comparison import compare_runs
    from geokv.report.compare.console import print_comparison
    from geokv.report.compare.rows import to_csv
    from geokv.report.disk import require_place, write_text

    for run in runs:
        require_run(run)
    for option, path in (("--html", html), ("--csv", csv)):
        if path is not None:
            require_place(path, option)
    comparison = compare_runs(runs, force)
    print_comparison(comparison)
    if csv is not None:
        write_text(csv, to_csv(comparison))
    if html is not None:
        from geokv.report.compare.html import comparison_html

        write_text(html, comparison_html(comparison))
    for path in (csv, html):
        if path is not None:
            typer.echo(f"written: {path}")
