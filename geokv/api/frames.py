"""The files of a run folder as pandas frames, with types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from geokv.errors import RunError
from geokv.measure.checker.history import load_histories

_YES = {"yes": True, "no": False}


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


def read_requests(path: Path) -> pd.DataFrame:
    """``requests.parquet``: integers stay integers where some are missing, and ``settings`` and
    ``misses`` are mappings.

    Raises:
        RunError: no such file.
    """
    _expect(path)
    frame = pd.read_parquet(path, dtype_backend="numpy_nullable")
    for name in ("settings", "misses"):
        frame[name] = [None if pd.isna(one) else json.loads(one) for one in frame[name]]
    return frame


def read_history(folder: Path) -> pd.DataFrame:
    """Every event of ``history.jsonl``; a column that an operation lacks is missing there.

    Raises:
        RunError: there is none, or a line is no event.
    """
    events: list[dict[str, Any]] = []
    for history in load_histories(folder):
        events += history.events
    frame = pd.DataFrame.from_records(events)
    for name in frame.select_dtypes("float").columns:
        # Counts that some events lack are integers all the same.
        if (frame[name].dropna() % 1 == 0).all():
            frame[name] = frame[name].astype("Int64")
    return frame


def read_links(path: Path) -> pd.DataFrame:
    """``links.json``: a row per check of a link.

    Raises:
        RunError: no such file, or a broken one.
    """
    _expect(path)
    rows = [
        {"cell": cell["cell"], **cell["settings"], **check}
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        for check in cell["links"]
    ]
    return pd.DataFrame.from_records(rows)


def _expect(path: Path) -> None:
    if not path.is_file():
        raise RunError(
            f"{path}: is not there",
            f"geokv report {path.parent} makes it of a run that has ended",
        )
