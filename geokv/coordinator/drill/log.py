"""The coordinator's own part of a drill's history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from geokv.clock import now_ns
from geokv.site.history import unwritable


class DrillLog:
    """Events ``{t_ns, site, op, …}``, one JSON line each, on disk before anything follows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream = path.open("a", encoding="utf-8", buffering=1)

    def note(self, op: str, site: str = "", t_ns: int | None = None, **fields: Any) -> int:
        """Write one event; returns its stamp.

        Args:
            site: the site meant; empty is the drill itself.
            t_ns: when it happened, where that was not now.

        Raises:
            RunError: the disk is full.
        """
        stamp = now_ns() if t_ns is None else t_ns
        event = {"t_ns": stamp, "site": site, "op": op, **fields}
        try:
            self._stream.write(json.dumps(event, separators=(",", ":")) + "\n")
        except OSError as error:
            raise unwritable(self._path, error) from None
        return stamp

    def close(self) -> None:
        """Nothing more comes."""
        self._stream.close()
