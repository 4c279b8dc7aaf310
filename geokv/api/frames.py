"""The files of a run folder as pandas frames, with types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from geokv.errors import RunError
from geokv.measure.checker.history import load_histories
from geokv.measure.drill.fates import fates

_YES = {"yes": True, "no": False}
_TOLD = ("status", "error", "source", "cached_tokens", "chunks_remote", "chunks_local",
         "wire_bytes", "first_ns", "done_ns", "ttft_ns")  # fmt: skip


def read_table(path: Path) -> pd.DataFrame:
    """``table.csv``: numbers are numbers, yes and no are booleans, what is empty is missing.

    Raises:
        RunError: no such file.
    """
    _expect(path)
    # A codec called "none" is a word, and only what is empty is missing.
    frame = pd.read_csv(path, keep_default_na=False, na_values=[""])
    for name in frame.columns:
        known = frame[name].dropna()
        if len(known) and known.isin(list(_YES)).all():
            kind = "bool" if len(known) == len(frame) else "boolean"
            frame[name] = frame[name].map(_YES).astype(kind)
    return frame


def read_requests(folder: Path, drill: bool) -> pd.DataFrame:
    """A row per request, in order of cells and of sending.

    Of a measurement it is ``requests.parquet``, with ``settings`` and ``misses`` as mappings; of
    a drill it is taken from the history: who asked what when, what came back, and its ``fate``.

    Raises:
        RunError: no such file, or a broken one.
    """
    if drill:
        return _drill_requests(folder)
    path = folder / "requests.parquet"
    _expect(path)
    frame = pd.read_parquet(path)
    for name in ("settings", "misses"):
        frame[name] = [None if one is None else json.loads(one) for one in frame[name]]
    return frame


def read_history(folder: Path) -> pd.DataFrame:
    """Every event of ``history.jsonl``; a column that an operation lacks is missing there.

    Raises:
        RunError: there is none, or a line is no event.
    """
    events: list[dict[str, Any]] = []
    for history in load_histories(folder):
        events += history.events
    return pd.DataFrame.from_records(events)


def read_links(folder: Path, drill: bool) -> pd.DataFrame:
    """A row per check of a link: cell, phase, RTT and goodput as asked and as measured.

    Raises:
        RunError: no such file, or a broken one.
    """
    if drill:
        rows = [
            {"cell": history.cell, **{k: v for k, v in one.items() if k not in ("op", "site")}}
            for history in load_histories(folder)
            for one in history.of("links")
        ]
        return pd.DataFrame.from_records(rows)
    path = folder / "links.json"
    _expect(path)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    rows = [
        {"cell": cell["cell"], **cell["settings"], **check}
        for cell in cells
        for check in cell["links"]
    ]
    return pd.DataFrame.from_records(rows)


def _drill_requests(folder: Path) -> pd.DataFrame:
    rows = []
    for history in load_histories(folder):
        for one, fate in fates(history).by_request:
            answer = one.answer or {}
            rows.append(
                {
                    "cell": history.cell,
                    "request_id": one.request_id,
                    "site": one.site,
                    "tenant": one.tenant,
                    "sent_ns": one.sent_ns,
                    "prompt_tokens": one.prompt_tokens,
                    "fate": fate,
                    **{name: answer.get(name) for name in _TOLD},
                }
            )
    frame = pd.DataFrame.from_records(rows)
    counts = [name for name in frame.columns if name.endswith(("_ns", "_tokens", "_bytes"))]
    counts += [name for name in frame.columns if name.startswith("chunks_")]
    return frame.astype({name: "Int64" for name in counts})


def _expect(path: Path) -> None:
    if not path.is_file():
        raise RunError(f"{path}: is not there", "this run did not finish; see its log.txt")
