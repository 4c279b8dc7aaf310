"""``requests.parquet`` of a drill: a row per request of every cell, with its fate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from geokv.measure.checker.exchanges import Exchange
from geokv.measure.checker.history import load_histories
from geokv.measure.drill.fates import fates
from geokv.measure.records import Spans
from geokv.report.disk import saving

_ASKED = {
    "request_id": pa.string(),
    "site": pa.string(),
    "door": pa.string(),
    "tenant": pa.string(),
    "prompt": pa.string(),
    "prefix": pa.int32(),
    "probe": pa.string(),
    "prompt_tokens": pa.int32(),
    "due_ns": pa.int64(),
    "deadline_ns": pa.int64(),
}
_ANSWERED = {
    "status": pa.string(),
    "error": pa.string(),
    "cached_tokens": pa.int32(),
    "output_ids": pa.list_(pa.int32()),
    "text": pa.string(),
    "first_ns": pa.int64(),
    "done_ns": pa.int64(),
    "ttft_ns": pa.int64(),
    "source": pa.string(),
    "wire_bytes": pa.int64(),
    "chunks_remote": pa.int32(),
    "chunks_local": pa.int32(),
}
_SPANS = Spans.__struct_fields__


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
    kinds = {
        "cell": pa.int32(),
        "control": pa.bool_(),
        **_ASKED,
        "sent_ns": pa.int64(),
        **_ANSWERED,
        "fate": pa.string(),
        "settings": pa.string(),
        "misses": pa.string(),
        **dict.fromkeys(_SPANS, pa.int64()),
    }
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
    with saving(path):
        pq.write_table(pa.table(columns), path, compression="zstd")


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
        **{name: spans.get(name) for name in _SPANS},
    }


def _text(prompt: Any) -> str | None:
    return prompt if prompt is None or isinstance(prompt, str) else json.dumps(prompt)
