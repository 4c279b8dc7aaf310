"""Reading ``events.jsonl`` while it grows."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from geokv.errors import ConfigError, RunError
from geokv.live.events import EVENTS

LAST = ("verdict", "failed")
"""The event after which none comes."""
_LOOK_EVERY_S = 0.05


class Follower:
    """Takes up what is new in one run's events.

    Attributes:
        offset: bytes read so far; a follower that starts with it goes on from there.
    """

    def __init__(self, run_dir: Path, offset: int = 0) -> None:
        self.path = run_dir / EVENTS
        self.offset = offset

    def new(self) -> list[dict[str, Any]]:
        """Whole lines since the last call, oldest first.

        Raises:
            ConfigError: there is no such file.
            RunError: a line is not an event.
        """
        try:
            with self.path.open("rb") as stream:
                stream.seek(self.offset)
                data = stream.read()
        except OSError as error:
            raise ConfigError(
                f"{self.path}: cannot be read ({error.strerror})",
                "name the folder of a run; runs are kept under results/",
            ) from None
        whole = data[: data.rfind(b"\n") + 1]
        begin, self.offset = self.offset, self.offset + len(whole)
        found = []
        for line in whole.splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                raise RunError(f"{self.path}: no event after byte {begin}") from None
        return found

    def until(self, deadline_s: float) -> Iterator[dict[str, Any]]:
        """Events as they come, until the run's last one, its end, or ``deadline_s`` real
        seconds from now."""
        until = time.monotonic() + deadline_s
        while True:
            # Asked before reading: what a run wrote before its end is then still read.
            going = is_going_on(self.path.parent)
            for event in self.new():
                yield event
                if event["event"] in LAST:
                    return
            if not going or time.monotonic() > until:
                return
            time.sleep(_LOOK_EVERY_S)


def read_events(run_dir: Path) -> list[dict[str, Any]]:
    """All events so far; errors as of ``Follower.new``."""
    return Follower(run_dir).new()


def is_going_on(run_dir: Path) -> bool:
    """Whether the process that carries the run is there (it holds a lock on its events)."""
    try:
        with (run_dir / EVENTS).open("rb") as stream:
            return is_held(stream)
    except OSError:
        return False


def is_held(stream: BinaryIO) -> bool:
    """Whether somebody else holds the lock of an open file. Raises OSError: it cannot be asked."""
    try:
        fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
