"""``requests.parquet``: a row per request, spans and distance as columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from geokv.measure.energy import Joules
from geokv.measure.records import CellRecord, Request
from geokv.report.request_columns import SPANS, write_requests

_RECORDED = (
    "request_id", "cell", "arm", "repeat", "warmup", "site", "tenant", "status", "error",
    "prompt_tokens", "cached_tokens", "output_ids", "text", "sent_ns", "first_ns", "done_ns",
    "ttft_ns", "source", "wire_bytes", "chunks_remote", "chunks_local", "chunks_disk", "decode_ns",
)  # fmt: skip
_JOULES = ("total_j", "gpu_j", "optics_j", "transfer_j")
_ENERGY = tuple(f"energy_proxy_{part}" for part in _JOULES)
_OWN = {
    "arm": pa.string(),
    "repeat": pa.int32(),
    "warmup": pa.bool_(),
    "chunks_disk": pa.int32(),
    "decode_ns": pa.int64(),
    **dict.fromkeys(_ENERGY, pa.float64()),
}


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
    rows = [_row(one, settings.get(one.cell), energy.get(one.request_id)) for one in requests]
    write_requests(path, (*_RECORDED, "settings", "misses", *SPANS, *_ENERGY), rows, _OWN)


def _row(one: Request, settings: str | None, joules: Joules | None) -> dict[str, Any]:
    return {
        **{name: getattr(one, name) for name in _RECORDED},
        "settings": settings,
        "misses": json.dumps(one.misses, sort_keys=True),
        **{name: getattr(one.spans, name, None) for name in SPANS},
        **{name: getattr(joules, part, None) for name, part in zip(_ENERGY, _JOULES, strict=True)},
    }
