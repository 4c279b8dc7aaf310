"""The steps of a run, read from the file it appends them to.

A step's place in the stream is its place in the file: whoever has read up to some byte goes on from
there, so nothing is kept for a reader, however slow, and a reader that comes back loses nothing.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from geokv.dashboard.reading import Folder, open_below, stamp_of

EVENTS, LOG = "events.jsonl", "log.txt"
BATCH_BYTES = 256 * 2**10
"""Read at once, and so the most that one message carries."""


@dataclass(frozen=True)
class Place:
    """How far a reader has come: whole lines of ``file`` before byte ``offset``."""

    file: str
    offset: int

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"


def parse_place(text: str) -> Place | None:
    """What ``str(place)`` gave; None for anything else."""
    file, _, offset = text.rpartition(":")
    if file not in (EVENTS, LOG) or not offset.isascii() or not offset.isdigit():
        return None
    return Place(file, int(offset[:18]))


def source_of(folder: Folder) -> str | None:
    """The file that has the steps: runs of before there were events have them in their log."""
    return next((name for name in (EVENTS, LOG) if stamp_of(folder, name) is not None), None)


def read_steps(folder: Folder, place: Place) -> tuple[list[dict[str, Any]], Place]:
    """The next whole lines, at most ``BATCH_BYTES`` of them.

    A line that is no step (a guest's last words in a log, a line longer than a batch) is left out.

    Returns:
        The steps, and where the next are; the same place when there is nothing new. A file that
        has become shorter is read from its start again.
    """
    try:
        with open_below(folder, [place.file]) as stream:
            size = os.fstat(stream.fileno()).st_size
            start = place.offset if place.offset <= size else 0
            stream.seek(start)
            data = stream.read(BATCH_BYTES)
    except OSError:
        return [], place
    end = data.rfind(b"\n") + 1
    if not end and len(data) == BATCH_BYTES:
        # The middle of an endless line: its rest will be no step either.
        end = len(data)
    steps = [step for line in data[:end].split(b"\n") if (step := _step(line, place.file))]
    return steps, Place(place.file, start + end)


def _step(line: bytes, file: str) -> dict[str, Any] | None:
    """``{…}``, or of a log ``[part] {…}``."""
    part = None
    if file == LOG:
        before, _, line = line.partition(b"] ")
        part = before[1:].decode("ascii", "replace")
    try:
        step = json.loads(line, parse_constant=_refuse)
    except ValueError:
        return None
    if not isinstance(step, dict) or not isinstance(step.get("event"), str):
        return None
    if part is not None and part.isdigit():
        step = {"part": int(part), **step}
    return step


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not JSON, and no browser reads it")
