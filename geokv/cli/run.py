"""``geokv run``: a scenario from start to verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def run(
    scenario: Annotated[str, typer.Argument(help="A name from scenarios/, or a YAML file.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change one value; can be repeated."),
    ] = None,
    clock: Annotated[str | None, typer.Option(help="virtual or wall.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder to make; default results/NAME/STAMP-HASH.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print summary.json and no table.")] = False,
) -> None:
    """Run a scenario, print its table and keep its run folder.

    The exit code is the verdict: 0 pass, 1 fail, 3 invalid, 4 unknown.

    Examples:

      geokv run distance_ttft

      geokv run distance_ttft --set links.a-b.rate=400G --set workload.requests=20

      geokv run smoke --json | jq .verdict
    """
    from geokv.report.console import print_run
    from geokv.runner import run_scenario
    from geokv.scenario import load_scenario

    overrides = list(set_ or [])
    if clock is not None:
        overrides.append(f"clock={clock}")
    if seed is not None:
        overrides.append(f"seed={seed}")
    loaded = load_scenario(scenario, overrides)
    arms = 1 if loaded.is_drill else len(loaded.arms)
    total = len(loaded.cells()) * arms * loaded.workload.requests
    with _Bar(total) as bar:
        run_dir, summary = run_scenario(loaded, out, bar.take)
    if json_:
        typer.echo(json.dumps({**summary, "run": str(run_dir)}, ensure_ascii=False))
    else:
        print_run(summary)
        typer.echo(f"\nrun folder: {run_dir}")
    raise typer.Exit(int(summary["exit_code"]))


class _Bar:
    """Progress on standard error, so that standard output stays the result."""

    def __init__(self, total: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=total)
        self._done = 0

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def take(self, step: dict[str, Any]) -> None:
        """Show one step of the run."""
        event = step["event"]
        if event == "folder":
            self._say(f"booting {step['parts']} VM(s)" if "VM" in step["kernel"] else "starting")
        elif event == "sites":
            self._say("starting sites")
        elif event == "cell":
            self._say(step["label"])
        elif event == "fault":
            self._say(f"{step['name']}: {step['phase'].replace('-', ' ')}")
        elif event == "quiesce":
            self._say("looking at the books")
        elif event == "report":
            self._say("writing tables and plots")
        elif event == "request" and not step["warmup"]:
            self._done += 1
            self._progress.update(self._task, completed=self._done)

    def _say(self, text: str) -> None:
        self._progress.update(self._task, description=text)
