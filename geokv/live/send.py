"""The host's end of commands: a file that a running coordinator reads."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from geokv.errors import ConfigError, RunError
from geokv.live.command import read_command
from geokv.live.follow import is_going_on

FOLDER = "live"
COMMANDS = "commands.jsonl"
OVER_HINT = "start one: geokv run live --pace 1x"


def commands_path(run_dir: Path) -> Path:
    """Where a run's commands are."""
    return run_dir / FOLDER / COMMANDS


def make_commands(run_dir: Path) -> None:
    """Make the file, for its owner alone.

    Raises:
        OSError: the folder cannot be written to.
    """
    path = commands_path(run_dir)
    path.parent.mkdir(mode=0o700)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def read_sent(run_dir: Path) -> list[dict[str, Any]]:
    """Every command sent so far; lines that are none are left out."""
    found = []
    for line in commands_path(run_dir).read_bytes().splitlines():
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict):
            found.append(data)
    return found


def new_id() -> str:
    """A name for a command that no other has."""
    return secrets.token_hex(6)


def send(run_dir: Path, do: str, **said: Any) -> str:
    """Append one command; returns its ``id``, which its answer carries.

    Args:
        do: ``inject`` with ``event``, ``heal`` with ``name``, or ``stop``.

    Raises:
        ConfigError: no command, no run, or one that takes none.
        RunError: the run is over.
    """
    identity, line = command_line(do, **said)
    path = commands_path(run_dir)
    if not run_dir.is_dir():
        raise ConfigError(f"{run_dir}: no such run folder", "runs are kept under results/")
    if not is_going_on(run_dir):
        raise RunError(f"{run_dir}: this run is over", OVER_HINT)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    except OSError as error:
        raise ConfigError(
            f"{path}: takes no commands ({error.strerror})",
            "a run takes them when it is started with --live or --pace",
        ) from None
    try:
        # One write: two senders never mix their lines.
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
    return identity


def command_line(do: str, **said: Any) -> tuple[str, bytes]:
    """A command's new id, and the line that is appended for it.

    Raises:
        ConfigError: no command.
    """
    data = {"id": new_id(), "do": do, **said}
    read_command(data)
    return str(data["id"]), (json.dumps(data, separators=(",", ":")) + "\n").encode()
