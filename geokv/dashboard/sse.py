"""Server-sent events (HTML standard, §9.2) as bytes, and how long a stream waits."""

from __future__ import annotations

import json
from typing import Any

LOOK_EVERY_S = 0.2
"""How late a page may be behind a file."""
HEARTBEAT_S = 10.0
"""A comment this often shows both ends that the other is there."""
BEAT = b": still here\n\n"


def message(event: str, data: Any, identity: str | None = None) -> bytes:
    """One event; JSON has no line breaks, so its data is one line."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    head = f"id: {identity}\n" if identity is not None else ""
    return f"{head}event: {event}\ndata: {text}\n\n".encode()
