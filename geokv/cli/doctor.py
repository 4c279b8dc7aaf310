"""``geokv doctor``: can this machine run geokv, and how?"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

_MARKS = {"ok": "[green]✓[/green]", "missing": "[red]✗[/red]", "note": "[yellow]·[/yellow]"}


def doctor(
    json_: Annotated[bool, typer.Option("--json", help="Print findings as JSON.")] = False,
) -> None:
    """Probe this host and its kernels, and say what a run would get.

    Tries things instead of looking at version numbers: a qdisc is there if a scratch
    namespace takes it. Exit 0 when runs are possible, 4 when something is missing.

    Examples:

      geokv doctor

      geokv doctor --json | jq .ok
    """
    from geokv.vm.doctor import diagnose

    with Console(stderr=True).status("looking around"):
        diagnosis = diagnose()
    if json_:
        typer.echo(json.dumps({"ok": diagnosis.ok, **asdict(diagnosis)}, ensure_ascii=False))
    else:
        console = Console()
        for one in diagnosis.findings:
            console.print(f"{_MARKS[one.state]} {one.name:13} {escape(one.said)}", highlight=False)
            if one.state != "ok" and one.hint:
                console.print(f"  [dim]→ {escape(one.hint)}[/dim]", highlight=False)
        console.print()
        for clock, kernel in diagnosis.places.items():
            console.print(f"--clock {clock:8} {escape(kernel)}", highlight=False)
        console.print("\nruns are possible" if diagnosis.ok else "\nruns are not possible yet")
    raise typer.Exit(0 if diagnosis.ok else 4)
