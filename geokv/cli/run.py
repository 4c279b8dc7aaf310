"""``geokv run``: a scenario from start to verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from geokv.ending import code_of, name_of


def run(
    scenario: Annotated[str, typer.Argument(help="A name from scenarios/, or a YAML file.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change one value; can be repeated."),
    ] = None,
    clock: Annotated[str | None, typer.Option(help="virtual or wall.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="1-5", help="Run every cell with each of these seeds, or so many."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder to make; default results/NAME/STAMP-HASH.")
    ] = None,
    pace: Annotated[
        str | None,
        typer.Option(metavar="FACTOR", help="Virtual time goes no faster than 1x, 0.5x, 10x …"),
    ] = None,
    live: Annotated[
        bool | None,
        typer.Option(
            "--live/--no-live",
            help="Samples in events.jsonl, and commands by geokv live; --pace implies it.",
        ),
    ] = None,
    prometheus: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve figures for Prometheus on 127.0.0.1 meanwhile; 0 takes a free port. "
            "Implies --live.",
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print summary.json and no table.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Say nothing on standard error but errors.")
    ] = False,
) -> None:
    """Run a scenario, print its table and keep its run folder.

    The exit code is the verdict: 0 pass, 1 fail, 3 invalid, 4 unknown; 130 after Ctrl-C and
    143 after SIGTERM, which end all VMs. Standard output is the result; progress goes to
    standard error: a live view on a terminal, lines anywhere else.

    Examples:

      geokv run distance_ttft

      geokv run distance_ttft --set links.a-b.rate=400G --set workload.requests=20

      geokv run distance_ttft --seeds 1-5

      geokv run smoke --json --quiet | jq .verdict

      geokv run live --pace 1x

      geokv run live --pace 1x --prometheus 9109
    """
    from geokv.report.console import print_run
    from geokv.report.progress.watch import watch_run
    from geokv.report.prometheus import figures_at
    from geokv.runner import run_scenario
    from geokv.scenario import load_scenario
    from geokv.scenario.seeds import parse_seeds

    overrides = list(set_ or [])
    if clock is not None:
        overrides.append(f"clock={clock}")
    if seed is not None:
        overrides.append(f"seed={seed}")
    if seeds is not None:
        overrides.append(f"seeds={parse_seeds(seeds)}")
    loaded = load_scenario(scenario, overrides)
    if live is None and prometheus is not None:
        live = True
    noise = Console(stderr=True, quiet=quiet)
    try:
        with figures_at(loaded, prometheus, noise) as figures:
            with watch_run(loaded, noise, quiet) as watch:

                def take(step: dict[str, Any]) -> None:
                    watch.take(step)
                    figures(step)

                run_dir, summary = run_scenario(loaded, out, take, pace=pace, live=live)
            if json_:
                typer.echo(json.dumps({**summary, "run": str(run_dir)}, ensure_ascii=False))
            else:
                print_run(summary)
                typer.echo(f"\nrun folder: {run_dir}")
    except KeyboardInterrupt as error:
        noise.print(f"stopped by {name_of(error)}: the run folder keeps what was recorded")
        raise typer.Exit(code_of(error)) from None
    raise typer.Exit(int(summary["exit_code"]))
