"""The ``geokv`` command. One file per command, each thin: parse, call a room, print, exit.

Exit codes: 0 pass or done, 1 fail, 2 wrong usage, 3 invalid (a link out of tolerance, a machine
that did not keep up with real time), 4 unknown or could not be carried out; 130 after Ctrl-C, 143
after SIGTERM, 129 after SIGHUP.
"""

from __future__ import annotations

import sys

import typer
from rich.console import Console
from rich.markup import escape

from geokv.cli import (
    capture,
    check,
    check_history,
    clean,
    compare,
    dashboard,
    doctor,
    drill,
    export,
    kernel,
    live,
    model,
    profile,
    replay,
    report,
    run,
    serve,
    table,
)
from geokv.cli.group import Commands
from geokv.ending import take_signals
from geokv.errors import GeokvError

app = typer.Typer(
    name="geokv",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Share KV caches between small data centres on an emulated optical network, "
    "and see what distance does to the time to first token.",
    epilog="Start with [bold]geokv doctor[/bold], then [bold]geokv run distance_ttft[/bold].",
)
app.command("doctor")(doctor.doctor)
app.command("run")(run.run)
app.command("drill")(drill.drill)
app.command("replay")(replay.replay)
app.command("serve")(serve.serve)
app.command("table")(table.table)
app.command("compare")(compare.compare)
app.command("dashboard")(dashboard.dashboard)
app.command("report")(report.report)
app.command("check")(check.check)
app.command("check-history")(check_history.check_history)
app.command("export")(export.export)
app.command("capture")(capture.capture)
app.command("clean")(clean.clean)
app.add_typer(live.app, name="live")
app.add_typer(kernel.app, name="kernel")
app.add_typer(model.app, name="model")
app.add_typer(profile.app, name="profile")


def main() -> None:
    """Entry point: expected errors become a message and an exit code, never a traceback."""
    take_signals()
    try:
        app()
    except GeokvError as error:
        console = Console(stderr=True, soft_wrap=True)
        console.print(f"[red]error:[/red] {escape(error.message)}", highlight=False)
        if error.hint:
            console.print(f"  → {escape(error.hint)}", highlight=False)
        sys.exit(error.exit_code)
