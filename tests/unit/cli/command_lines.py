"""Command lines as people type them, read by the parser that the command itself has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

from geokv.cli import app

_INSIDE = re.compile(r"\$\((geokv [^()]*)\)")
_ENDS = ("|", "||", "&", "&&", ";", ">", ">>", "<")
"""What ends a command in a line of a shell."""


@dataclass(frozen=True)
class Call:
    """One ``geokv`` in a line: which command it is, and what that was given."""

    command: str
    params: dict[str, Any]


class Parser:
    """The whole ``geokv`` but for what its commands do."""

    def __init__(self) -> None:
        self._root: Any = typer.main.get_command(app)
        self._read: list[Any] = []
        for _, command in self.commands():
            command.invoke = self._read.append

    def commands(self, of: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
        """Name and command, of every command that is no group."""
        for name, one in (of or self._root).commands.items():
            if hasattr(one, "commands"):
                yield from self.commands(one, (*path, name))
            else:
                yield " ".join((*path, name)), one

    def read(self, line: str) -> Call:
        """The first ``geokv`` of a line.

        Raises:
            ValueError: there is none, its quotes do not end, or the parser does not take it.
        """
        inside = _INSIDE.search(line)
        lexer = shlex.shlex(inside[1] if inside else line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words = list(lexer)
        words = words[words.index("geokv") + 1 :]
        end = next((at for at, word in enumerate(words) if word in _ENDS), len(words))
        self._read.clear()
        try:
            self._root.main(words[:end], prog_name="geokv", standalone_mode=False)
        except Exception as error:
            raise ValueError(f"{line}: {getattr(error, 'message', error)}") from error
        (context,) = self._read
        return Call(context.command_path.removeprefix("geokv "), context.params)


def examples(command: Any) -> list[str]:
    """The lines of a command's help after ``Examples:``."""
    _, _, after = (command.help or "").partition("Examples:")
    return [line.strip() for line in after.splitlines() if line.strip()]
