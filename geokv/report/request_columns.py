"""The columns that ``requests.parquet`` of a measurement run and that of a drill share: one name
means, and is stored as, the same in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from geokv.measure.records import Spans
from geokv.report.disk import saving

SPANS = Spans.__struct_fields__
"""The parts of a TTFT, ns each."""
_KINDS = {
    "request_id": pa.string(),
    "cell": pa.int32(),
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
    "settings": pa.string(),
    "misses": pa.string(),
    **dict.fromkeys(SPANS, pa.int64()),
}


def write_requests(
    path: Path,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    own: Mapping[str, pa.DataType],
) -> None:
    """Write a row per request.

    Args:
        columns: names, in the order of the file.
        rows: a value, or None, for every column.
        own: kinds of the columns that only this kind of run has.

    Raises:
        RunError: a full disk.
        ConfigError: the folder cannot be written to.
    """
    kinds = _KINDS | dict(own)
    arrays = {name: pa.array([row[name] for row in rows], kinds[name]) for name in columns}
    with saving(path):
        pq.write_table(pa.table(arrays), path, compression="zstd")
