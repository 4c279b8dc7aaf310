"""Commands from the host: a file of the run folder that only grows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LOOK_EVERY_S = 0.05


class Inbox:
    """Takes up whole lines that were appended since the last look.

    In the VM the file is the host's (hostfs): each look opens it anew, which is when the guest
    learns of its length.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[Any]:
        """What each line says, oldest first; text that is no JSON is given as it is."""
        try:
            if self._path.stat().st_size <= self._offset:
                return []
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [_parsed(line) for line in whole.splitlines() if line.strip()]


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line.decode(errors="replace")
