"""What all commands have in common: how their help flows, and what stops them."""

from __future__ import annotations

import inspect
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from geokv.ending import code_of, name_of


class Commands(TyperGroup):
    """What stops a command becomes its exit code, whichever command it is."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for command in self.commands.values():
            command.help = flowing(command.help or "")

    def invoke(self, ctx: Any) -> Any:
        """As typer's; Ctrl-C and signals to end are said, and have an exit code each."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            Console(stderr=True).print(f"stopped by {name_of(error)}")
            raise typer.Exit(code_of(error)) from None


def flowing(text: str) -> str:
    """A docstring whose paragraphs fill the width of any terminal: their line ends are those of
    the source. What is indented stays as it is."""
    return "\n\n".join(
        part if part.startswith((" ", "\b")) else part.replace("\n", " ")
        for part in inspect.cleandoc(text).split("\n\n")
    )
