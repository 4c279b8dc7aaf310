"""``geokv replay``: a run's trace played again, and whether it hits as the run did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def replay(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    cell: Annotated[int, typer.Option(help="Which cell of it.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Run folder to make; default results/NAME/STAMP-HASH.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Say nothing on standard error but errors.")
    ] = False,
) -> None:
    """Replay the trace of a run's cell and compare where its tokens came from.

    A replay has the virtual clock, also of a run by the wall clock: what was then decided by how
    long the machine took may come out otherwise. A cell with compute: real, or in which faults
    were made or healed by hand, is refused.

    Exit code 0 when every site served as many tokens from every tier and every other site as
    in the run, else 1; 3 and 4 as of the replay's own verdict.

    Examples:

      geokv replay results/smoke/20260101-000000-1a2b3c4d --cell 1
    """
    from geokv.measure.drill.by_hand import done_by_hand
    from geokv.measure.gaps.trace import differing
    from geokv.report.progress.watch import watch_run
    from geokv.report.run_folder import read_summary
    from geokv.runner import run_scenario
    from geokv.scenario.replay import replay_of

    before = read_summary(run_dir)
    by_hand = done_by_hand(run_dir, cell) if before.get("by_hand") else []
    scenario = replay_of(run_dir, cell, by_hand)
    with watch_run(scenario, Console(stderr=True), quiet) as watch:
        made, after = run_scenario(scenario, out, watch.take)
    then, now = before["gaps"]["mg7"]["cells"][cell], after["gaps"]["mg7"]["cells"][0]
    if before["provenance"]["clock"] == "wall":
        typer.echo("the run went by the wall clock, and its replay in virtual time")
    for site, tokens in now["tokens"].items():
        shown = ", ".join(f"{tier} {count:,}" for tier, count in tokens.items())
        typer.echo(f"{site}: {shown}")
    lines = differing(then, now)
    for line in lines:
        typer.echo(f"✗ {line}")
    if not lines:
        typer.echo(f"✓ {now['answered']} requests: every tier and site gave as in the run")
    typer.echo(f"\nrun folder: {made}")
    code = int(after["exit_code"])
    raise typer.Exit(code if code >= 3 else int(bool(lines)))
