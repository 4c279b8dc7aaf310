"""What a run made on this machine, written down before it is made.

A journal is a file of JSON lines: a header with the owner, one line per thing, one line per
thing taken away again. ``clean`` removes exactly what a dead owner's journal lists, after
``kill -9`` too, and nothing else: never by name pattern, never a process whose start time differs.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geokv.errors import LabError
from geokv.paths import state_folder

ENTRY_VARIABLE = "GEOKV_ENTRY"
"""Environment variable that marks a process whose pid was not yet written when its owner died."""

KINDS = ("process", "mount", "netns", "interface", "folder", "sysctl")


def default_folder() -> Path:
    """``$XDG_STATE_HOME/geokv/journals``; inside the VM its tmpfs, since all dies with the VM."""
    if _in_uml():
        return Path("/run/geokv/journals")
    return state_folder() / "journals"


def _in_uml() -> bool:
    try:
        return "User Mode Linux" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def boot_id() -> str:
    """Names this boot of this kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone (or a zombie)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    rest = text.rpartition(")")[2].split()
    return None if rest[0] in "ZX" else int(rest[19])


@dataclass(frozen=True, slots=True)
class Owner:
    """The process a journal belongs to."""

    pid: int
    start: int
    boot: str

    @property
    def alive(self) -> bool:
        """Whether that very process still runs on this boot."""
        return self.boot == boot_id() and start_time(self.pid) == self.start


@dataclass(slots=True)
class Contents:
    """A journal as read back: what is still there, oldest first."""

    path: Path
    run: str
    owner: Owner
    entries: dict[int, dict[str, Any]] = field(default_factory=dict)


class Journal:
    """An open journal; use as a context manager or ``close`` it."""

    def __init__(self, path: Path, run: str) -> None:
        self.path = path
        self.run = run
        self._next = 0
        self._open: dict[int, dict[str, Any]] = {}
        self._file = path.open("x", encoding="utf-8")
        self._write({"run": run, "pid": os.getpid(), "start": start_time(os.getpid()),
                     "boot": boot_id()})  # fmt: skip

    @classmethod
    def open(cls, run: str | None = None, folder: Path | None = None) -> Journal:
        """Start a journal.

        Args:
            run: short id that every name of the run carries; random by default.

        Raises:
            LabError: the folder cannot be written.
        """
        run = run or secrets.token_hex(4)
        folder = folder or default_folder()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return cls(folder / f"{run}.jsonl", run)
        except OSError as error:
            raise LabError(
                f"journal {folder / run} cannot be written ({error.strerror})",
                "set XDG_STATE_HOME to a folder of yours",
            ) from None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def record(self, kind: str, **what: Any) -> int:
        """Write down a thing before making it; returns the entry's number.

        Kinds: ``process`` (pid, start: both added later through ``amend``), ``mount`` (path),
        ``netns`` (name under /run/netns), ``interface`` (name, in the first namespace),
        ``folder`` (path), ``sysctl`` (path, old, new). Names and folders carry the run id.
        """
        if kind not in KINDS:
            raise ValueError(f"journal kinds are {', '.join(KINDS)}, got {kind!r}")
        self._next += 1
        self._open[self._next] = {"kind": kind, **what}
        self._write({"id": self._next, "kind": kind, **what})
        return self._next

    def amend(self, entry: int, **what: Any) -> None:
        """Add what was not known before, such as a process's pid and start."""
        self._open[entry].update(what)
        self._write({"id": entry, **self._open[entry]})

    def process_started(self, entry: int, pid: int) -> None:
        """Complete a ``process`` entry."""
        self.amend(entry, pid=pid, start=start_time(pid))

    def environment(self, entry: int) -> dict[str, str]:
        """What a process of this entry must have in its environment."""
        return {ENTRY_VARIABLE: f"{self.run}:{entry}"}

    def done(self, entry: int) -> None:
        """The thing is gone again; harmless when repeated."""
        if self._open.pop(entry, None) is not None:
            self._write({"gone": entry})

    def close(self) -> None:
        """Close; the file goes when everything in it is gone."""
        if self._file.closed:
            return
        self._file.close()
        if not self._open:
            self.path.unlink(missing_ok=True)

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def read_journal(path: Path) -> Contents:
    """Read a journal back; a last line cut short by the owner's death is left out.

    Raises:
        LabError: not a journal.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise LabError(f"journal {path} cannot be read ({error.strerror})") from None
    contents: Contents | None = None
    for number, text in enumerate(lines):
        try:
            line = json.loads(text)
        except ValueError:
            if number == len(lines) - 1:
                break
            raise LabError(f"{path}:{number + 1}: not a journal line") from None
        if contents is None:
            owner = Owner(line["pid"], line["start"], line["boot"])
            contents = Contents(path, line["run"], owner)
        elif "gone" in line:
            contents.entries.pop(line["gone"], None)
        else:
            contents.entries[line.pop("id")] = line
    if contents is None:
        raise LabError(f"{path}: an empty journal", "its owner died at once: delete the file")
    return contents


def dead_journals(folder: Path | None = None) -> list[Path]:
    """Journals whose owner no longer runs, oldest name first."""
    folder = folder or default_folder()
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        if path.stat().st_size == 0 or not read_journal(path).owner.alive:
            found.append(path)
    return found
