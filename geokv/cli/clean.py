"""``geokv clean``: exactly what dead runs left."""

from __future__ import annotations

import shutil

import typer


def clean() -> None:
    """Remove what the journals of dead runs list, and nothing else.

    Running runs and everything geokv did not make are left alone. VMs leave nothing but
    their folder; a native run that was killed may leave namespaces and interfaces.

    Examples:

      geokv clean
    """
    from geokv.lab.clean import clean as clean_journal
    from geokv.lab.journal import dead_journals
    from geokv.vm.slot import dead_folders

    removed = 0
    for journal in dead_journals():
        for line in clean_journal(journal):
            typer.echo(f"removed {line}")
            removed += 1
    for folder in dead_folders():
        shutil.rmtree(folder)
        typer.echo(f"removed folder {folder}")
        removed += 1
    typer.echo("nothing to remove" if not removed else f"{removed} things removed")
