"""``geokv live``: tell a running drill something."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from geokv.cli.group import Commands

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Make faults in a running drill, heal them, or end it in order.",
    epilog="The drill must have been started with --live or --pace: "
    "[bold]geokv run live --pace 1x[/bold].",
    rich_markup_mode="rich",
)
_Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the running drill.")]
_Within = Annotated[float, typer.Option("--within", min=0.1, help="Real seconds to wait.")]


@app.command()
def inject(
    run: _Run,
    fault: Annotated[
        list[str],
        typer.Argument(
            metavar="FAULT…",
            help="Kind, target, and KEY=VALUE or KEY VALUE as in a timeline.",
        ),
    ],
    within: _Within = 30.0,
) -> None:
    """Make a fault now, and wait until it is seen to have taken effect.

    It lasts as long as FOR says, or until it is healed, or until the stream
    ends. The exit code is 0 when it took effect, 4 when it did not.

    Examples:

      geokv live inject results/live/RUN link-cut a-b for 5s

      geokv live inject results/live/RUN site-kill b restart 3s

      geokv live inject results/live/RUN link-degrade a-b loss=1% delay=2ms name=rain
    """
    from geokv.live.words import parse_fault

    _do(run, within, "inject", event=parse_fault(" ".join(fault)))


@app.command()
def heal(
    run: _Run,
    name: Annotated[str, typer.Argument(help="Name of the fault, as inject prints it.")],
    within: _Within = 30.0,
) -> None:
    """Take back a fault that lasts, and wait until that is seen.

    Examples:

      geokv live heal results/live/RUN link-cut-1
    """
    _do(run, within, "heal", name=name)


@app.command()
def stop(run: _Run, within: _Within = 30.0) -> None:
    """Send no more requests: the drill heals, looks at its books and is judged.

    Examples:

      geokv live stop results/live/RUN
    """
    _do(run, within, "stop")


def _do(run: Path, within_s: float, do: str, **said: Any) -> None:
    """Send a command, and show its answer and what becomes of its fault."""
    from geokv.live.tell import tell

    for event in tell(run, within_s, do, **said):
        if event["event"] == "command":
            typer.echo(f"{do} {event.get('name', '')}: accepted".replace(" :", ":"))
            continue
        typer.echo(f"{event['name']}: {event['phase']} {event['seen'] or event['said']}".rstrip())
        if event["phase"].startswith("did-not"):
            raise typer.Exit(4)
