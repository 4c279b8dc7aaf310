"""A site's block operations, one JSON line each, buffered: writing must not disturb a run."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from geokv.errors import RunError

_BUFFER_BYTES = 1 << 20


def unwritable(path: Path, error: OSError) -> RunError:
    """A record that could not be written, in words for whoever runs the run."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunError(
            f"{path}: the disk is full",
            "free some space, or choose another place with --out DIR; what was written is kept",
        )
    return RunError(f"{path}: cannot be written ({error.strerror})")


class HistoryFile:
    """Sink for ``SharedCache``; lines are whole on disk after ``flush``.

    Args:
        at_once: each line goes out as it is written, so that a killed site loses none.
    """

    def __init__(self, path: Path, at_once: bool = False) -> None:
        buffering = 1 if at_once else _BUFFER_BYTES
        self._stream = path.open("a", encoding="utf-8", buffering=buffering)

    def __call__(self, event: dict[str, Any]) -> None:
        self._stream.write(json.dumps(event, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        """Raises RunError when the disk is full."""
        try:
            self._stream.flush()
        except OSError as error:
            raise unwritable(Path(self._stream.name), error) from None

    def close(self) -> None:
        """Write what is left and close the file."""
        self._stream.close()
