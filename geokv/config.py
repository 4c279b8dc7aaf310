"""Strict configuration: unknown keys and impossible values are refused with their path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from geokv.errors import ConfigError


class Strict(BaseModel):
    """Base of every model a user can write: frozen, and no key is ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=BaseModel)

_WORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "greater_than_equal": lambda c: f"must be ≥ {c['ge']:g}",
    "greater_than": lambda c: f"must be > {c['gt']:g}",
    "less_than_equal": lambda c: f"must be ≤ {c['le']:g}",
    "less_than": lambda c: f"must be < {c['lt']:g}",
    "extra_forbidden": lambda c: "unknown key",
    "missing": lambda c: "is required",
    "union_tag_invalid": lambda c: f"must be {c['expected_tags']}, got {c['tag']!r}",
    "union_tag_not_found": lambda c: "is required",
}


def load_yaml(path: Path) -> dict[str, Any]:
    """Read one YAML mapping.

    Raises:
        ConfigError: the file is missing, unreadable, not YAML or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise ConfigError(f"{place}: not valid YAML ({error.problem})") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must be a mapping of keys to values")
    return data


def validate(model: type[Model], data: Any, source: str = "") -> Model:
    """Build ``model`` from ``data``, or say what is wrong, one line per problem.

    Args:
        source: file name put before every path.

    Raises:
        ConfigError: ``links.a-b.km: must be ≥ 0, got -3``.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        lines = [_line(item, source, data) for item in error.errors()]
        raise ConfigError("\n".join(dict.fromkeys(lines))) from None


def _path(loc: tuple[Any, ...], data: Any) -> str:
    """``loc`` as the user wrote it: pydantic adds the tag of a union by ``kind`` or ``fault``."""
    parts = []
    here = data
    for part in loc:
        if isinstance(here, dict) and part not in here and part in _tags(here):
            continue
        parts.append(str(part))
        try:
            here = here[part]
        except (LookupError, TypeError):
            here = None
    return ".".join(parts)


def _tags(data: dict[str, Any]) -> tuple[Any, ...]:
    """What may name a member of a union here."""
    return (data.get("kind"), data.get("fault"), data.get("do"))


def _line(item: Any, source: str, data: Any) -> str:
    context = item.get("ctx", {})
    words = _WORDS.get(item["type"])
    if words:
        text = words(context)
    elif item["type"] == "value_error":
        text = str(context["error"])
    else:
        text = item["msg"][0].lower() + item["msg"][1:]
    got = item["input"]
    if item["type"] not in {"missing", "extra_forbidden", "value_error"} and not isinstance(
        got, dict | list
    ):
        text += f", got {got!r}" if isinstance(got, str) else f", got {got}"
    path = _path(item["loc"], data)
    if item["type"].startswith("union_tag"):
        path = f"{path}.{context['discriminator'].strip(chr(39))}"
    place = f"{path}: " if path else ""
    return f"{source}: {place}{text}" if source else f"{place}{text}"
