"""A command to run somewhere, and how it ended."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """One command, run with the checkout as its working folder.

    Attributes:
        argv: the command; ``python`` as first word means this interpreter.
        memory_bytes: the VM's memory; a native place ignores it.
        watchdog_s: real seconds without a line of output after which it is stopped.
        env: variables beside the fixed ones of ``guest_environment``.
        interactive: give the command the caller's terminal.
        pace: virtual seconds per real second, at most; None is as fast as it goes.
    """

    argv: tuple[str, ...]
    memory_bytes: int = 2 * 2**30
    watchdog_s: float = 120.0
    env: dict[str, str] = field(default_factory=dict)
    interactive: bool = False
    pace: float | None = None

    def write(self, folder: Path) -> Path:
        """Put the job where the guest finds it."""
        path = folder / "job.json"
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: Path) -> Job:
        """The job that ``write`` has put there."""
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**data, "argv": tuple(data["argv"])})


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        status: exit status of the command; 128 + signal number when a signal ended it.
        errors: what it wrote to standard error.
    """

    status: int
    errors: str
