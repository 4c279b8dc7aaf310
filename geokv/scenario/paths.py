"""Dotted names of things in a scenario: ``links.a-b.km``, ``deployment.byte_scale``.

``links.*`` and ``sites.*`` name parts of the topology, everything else is a key of
the scenario itself. A number addresses an element of a list: ``sweep.0.values``; what has a name
is addressed by it too, as an event of the timeline: ``timeline.cut.link``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import yaml

from geokv.errors import ConfigError

TOPOLOGY_PARTS = ("links", "sites")


def full_path(path: str) -> str:
    """The path from the scenario's root: ``links.a-b.km`` → ``topology.links.a-b.km``."""
    return f"topology.{path}" if path.split(".")[0] in TOPOLOGY_PARTS else path


def short_path(path: str) -> str:
    """The inverse of ``full_path``: the name a user would type."""
    return path.removeprefix("topology.") if path.startswith("topology.") else path


def known_paths(data: Any, prefix: str = "") -> Iterator[str]:
    """Every path of ``data``, inner nodes too, in user's form."""
    items: list[tuple[str, Any]] = []
    if isinstance(data, dict):
        items = [(str(key), value) for key, value in data.items()]
    elif isinstance(data, list):
        items = [(str(index), value) for index, value in enumerate(data)]
    for key, value in items:
        path = f"{prefix}{key}"
        yield short_path(path)
        yield from known_paths(value, f"{path}.")


def suggest(path: str, known: list[str]) -> str:
    """``; did you mean links.a-b.km?`` or nothing."""
    near = difflib.get_close_matches(path, known, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def with_value(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A deep copy of ``data`` with the value at ``path`` set; missing mappings are made.

    Raises:
        ConfigError: the path runs through something that is no mapping or list.
    """
    copy = deepcopy(data)
    here: Any = copy
    *parents, last = full_path(path).split(".")
    for part in parents:
        if isinstance(here, list):
            here = here[_index(here, part, path)]
            continue
        if not isinstance(here.get(part), dict | list):
            if here.get(part) is not None:
                raise ConfigError(f"{path}: {part} is a value, it has no parts")
            here[part] = {}
        here = here[part]
    if isinstance(here, list):
        here[_index(here, last, path)] = value
    else:
        here[last] = value
    return copy


def _index(items: list[Any], part: str, path: str) -> int:
    if part.isdecimal() and int(part) < len(items):
        return int(part)
    for number, item in enumerate(items):
        # An event without a name is called what its fault is.
        if isinstance(item, dict) and part == (item.get("name") or item.get("fault")):
            return number
    raise ConfigError(f"{path}: {part!r} is no element of a list of {len(items)}")


def parse_override(text: str) -> tuple[str, Any]:
    """``links.a-b.km=50`` → the path and the value, read as YAML.

    Raises:
        ConfigError: no ``=``, an empty path, or a value that is not YAML.
    """
    path, equals, value = text.partition("=")
    path = path.strip()
    if not equals or not path or "" in path.split("."):
        raise ConfigError(f"--set {text}: must be path=value", "for example --set links.a-b.km=50")
    try:
        return short_path(path), yaml.safe_load(value)
    except yaml.YAMLError:
        raise ConfigError(f"--set {text}: the value is not valid YAML") from None
