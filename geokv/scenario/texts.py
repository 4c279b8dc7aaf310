"""Texts that a scenario names by file, read when it is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.errors import ConfigError
from geokv.scenario.trace_file import with_lines

KEYS = ("text", "foreign")
_MOST_BYTES = 4 * 2**20


def with_texts(data: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """The mapping of a scenario with each text of its workload in place.

    Args:
        folder: of the scenario's file, where its paths begin; None is the working folder.

    Raises:
        ConfigError: no such file, or not a text.
    """
    workload = data.get("workload")
    if isinstance(workload, dict) and workload.get("kind") == "trace":
        return {**data, "workload": with_lines(workload, folder)}
    if not isinstance(workload, dict) or workload.get("kind") != "document":
        return data
    read = {
        key: _read(workload[key], folder, f"workload.{key}") for key in KEYS if workload.get(key)
    }
    return {**data, "workload": {**workload, **read}}


def _read(named: Any, folder: Path | None, place: str) -> Any:
    if isinstance(named, dict) and (named.get("content") is not None or "file" not in named):
        return named
    file = named["file"] if isinstance(named, dict) else named
    if not isinstance(file, str):
        return named
    path = (folder or Path()) / Path(file).expanduser()
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{place}: {path} is larger than {_MOST_BYTES // 2**20} MiB")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{place}: {path} cannot be read ({error.strerror})",
            "give a text file; its path begins where the scenario's file lies",
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{place}: {path} is not UTF-8 text ({error.reason})") from None
    if not text.strip():
        raise ConfigError(f"{place}: {path} is empty")
    return {"file": file, "content": text}
