"""The lines of a trace that a scenario replays, read when it is loaded."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import msgspec

from geokv.errors import ConfigError

_MOST_BYTES = 64 * 2**20
_PLACE = "workload.file"


class _OfCell(msgspec.Struct, frozen=True):
    """What choosing lines needs to know of them."""

    cell: int = 0


def with_lines(workload: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """A trace workload with the lines that are replayed in place, so that a run can be repeated
    from its folder.

    Args:
        folder: of the scenario's file, where its paths begin; None is the working folder.

    Raises:
        ConfigError: no such file, or no trace, or too long.
    """
    named = workload.get("file")
    if isinstance(named, dict) and (named.get("content") is not None or "file" not in named):
        return workload
    file = named["file"] if isinstance(named, dict) else named
    if not isinstance(file, str):
        return workload
    path = (folder or Path()) / Path(file).expanduser()
    rows = _of_cell(_read(path), workload.get("cell", 0), path)
    skip, take = workload.get("skip", 0), workload.get("take")
    if isinstance(skip, int) and isinstance(take, int | None):
        rows = rows[skip : None if take is None else skip + take]
    if not rows:
        raise ConfigError(
            f"{_PLACE}: {path} has no line left for this cell, skip and take",
            "a run's trace has the cells of its run; others are cell 0",
        )
    return {**workload, "file": {"file": file, "content": "\n".join(rows) + "\n"}}


def _of_cell(rows: list[str], cell: Any, path: Path) -> list[str]:
    decoder = msgspec.json.Decoder(_OfCell)
    kept = []
    for number, row in enumerate(rows, start=1):
        try:
            if row.strip() and decoder.decode(row).cell == cell:
                kept.append(row)
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"{_PLACE}: {path}:{number}: not a request of a trace ({error})"
            ) from None
    return kept


def _read(path: Path) -> list[str]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            raw = stream.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{_PLACE}: {path} cannot be read ({why})",
            "give a trace in JSON lines, also .gz; its path begins where the scenario's file lies",
        ) from None
    if len(raw) > _MOST_BYTES:
        raise ConfigError(f"{_PLACE}: {path} is larger than {_MOST_BYTES // 2**20} MiB")
    try:
        return raw.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{_PLACE}: {path} is not UTF-8 text ({error.reason})") from None
