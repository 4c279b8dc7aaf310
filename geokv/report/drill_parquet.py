"""``requests.parquet`` of a drill: a row per request of every cell, with its fate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from geokv.measure.checker.exchanges import Exchange
from geokv.measure.checker.history import load_histories
from geokv.measure.drill.fates import fates
from geokv.report.request_columns import SPANS, write_requests

_ASKED = (
    "request_id", "site", "door", "tenant", "prompt", "prefix", "probe", "prompt_tokens", "due_ns",
    "deadline_ns",
)  # fmt: skip
_ANSWERED = (
    "status", "error", "cached_tokens", "output_ids", "text", "first_ns", "done_ns", "ttft_ns",
    "source", "wire_bytes", "chunks_remote", "chunks_local",
)  # fmt: skip
_COLUMNS = (
    "cell", "control", *_ASKED, "sent_ns", *_ANSWERED, "fate", "settings", "misses", *SPANS,
)  # fmt: skip
_OWN = {
    "control": pa.bool_(),
    "door": pa.string(),
    "prompt": pa.string(),
    "prefix": pa.int32(),
    "probe": pa.string(),
    "due_ns": pa.int64(),
    "deadline_ns": pa.int64(),
    "fate": pa.string(),
}


def write_drill_parquet(path: Path, run_dir: Path, summary: dict[str, Any]) -> None:
    """Write every request; ``status`` is ``unanswered`` where no answer came.

    Columns that measurement runs have, too, mean the same.

    Raises:
        RunError: no history, a broken one, or a full disk.
        ConfigError: the folder cannot be written to.
    """
    cells = {cell["cell"]: cell for cell in summary["cells"]}
    rows = [
        _row(one, fate, cells[number])
        for history in load_histories(run_dir)
        if (number := history.cell or 0) in cells
        for one, fate in fates(history).by_request
    ]
    write_requests(path, _COLUMNS, rows, _OWN)


def _row(one: Exchange, fate: str, cell: dict[str, Any]) -> dict[str, Any]:
    asked, answer = one.request, one.answer or {"status": "unanswered"}
    spans = answer.get("spans") or {}
    return {
        "cell": cell["cell"],
        "control": cell["control"],
        **{name: asked.get(name) for name in _ASKED},
        # Routing may have sent it on.
        "door": asked.get("door") or one.site,
        # A prompt is a name, a number or token ids.
        "prompt": _text(asked.get("prompt")),
        # The client's own stamp; where no answer brought it, that of the event before.
        "sent_ns": answer.get("sent_ns", one.sent_ns),
        **{name: answer.get(name) for name in _ANSWERED},
        "fate": fate,
        "settings": json.dumps(cell["settings"], sort_keys=True),
        "misses": json.dumps(answer.get("misses") or {}, sort_keys=True),
        **{name: spans.get(name) for name in SPANS},
    }


def _text(prompt: Any) -> str | None:
    return prompt if prompt is None or isinstance(prompt, str) else json.dumps(prompt)
