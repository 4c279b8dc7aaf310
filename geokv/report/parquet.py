"""``requests.parquet``: a row per request, spans and distance as columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from geokv.measure.energy import Joules
from geokv.measure.records import CellRecord, Request, Spans
from geokv.report.disk import saving

_PLAIN = {
    "request_id": pa.string(),
    "cell": pa.int32(),
    "arm": pa.string(),
    "repeat": pa.int32(),
    "warmup": pa.bool_(),
    "site": pa.string(),
    "tenant": pa.string(),
    "status": pa.string(),
    "error": pa.string(),
    "prompt_tokens": pa.int32(),
    "cached_tokens": pa.int32(),
    "output_ids": pa.list_(pa.int32()),
    "text": pa.string(),
    "sent_ns": pa.int64(),
    "first_ns": pa.int64(),
    "done_ns": pa.int64(),
    "ttft_ns": pa.int64(),
    "source": pa.string(),
    "wire_bytes": pa.int64(),
    "chunks_remote": pa.int32(),
    "chunks_local": pa.int32(),
    "chunks_disk": pa.int32(),
    "decode_ns": pa.int64(),
}
_SPANS = Spans.__struct_fields__


def write_parquet(
    path: Path, requests: list[Request], cells: list[CellRecord], energy: dict[str, Joules]
) -> None:
    """Write all requests, prepares and warm-ups too. First-token logits stay in the records.

    Args:
        energy: proxy by request id; requests without one get nulls.

    Raises:
        RunError: a full disk.
        ConfigError: the folder cannot be written to.
    """
    settings = {cell.cell: json.dumps(cell.settings, sort_keys=True) for cell in cells}
    columns: dict[str, Any] = {
        name: pa.array([getattr(row, name) for row in requests], kind)
        for name, kind in _PLAIN.items()
    }
    columns["settings"] = pa.array([settings.get(row.cell) for row in requests], pa.string())
    columns["misses"] = pa.array(
        [json.dumps(row.misses, sort_keys=True) for row in requests], pa.string()
    )
    for name in _SPANS:
        values = [getattr(row.spans, name) if row.spans else None for row in requests]
        columns[name] = pa.array(values, pa.int64())
    for part in ("total_j", "gpu_j", "optics_j", "transfer_j"):
        joules = [getattr(energy.get(row.request_id), part, None) for row in requests]
        columns[f"energy_proxy_{part}"] = pa.array(joules, pa.float64())
    with saving(path):
        pq.write_table(pa.table(columns), path, compression="zstd")
