"""A site's block operations, one JSON line each, buffered: writing must not disturb a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_BUFFER_BYTES = 1 << 20


class HistoryFile:
    """Sink for ``SharedCache``; lines are whole on disk after ``flush``."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("a", encoding="utf-8", buffering=_BUFFER_BYTES)

    def __call__(self, event: dict[str, Any]) -> None:
        self._stream.write(json.dumps(event, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()
