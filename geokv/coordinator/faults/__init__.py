"""Faults that a drill's timeline can name: one per file, called after its kind; or, as
``module:Class``, one of the user's own."""

from __future__ import annotations

import importlib
from typing import Any

from geokv import foreign
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.errors import ConfigError

__all__ = ["Evidence", "Fault", "fault_class"]


def fault_class(kind: str) -> type[Fault[Any]]:
    """The fault of a kind, from the module that is called after it, or the class that is named.

    Raises:
        ConfigError: there is no such module or class, or it is no fault.
    """
    if foreign.is_reference(kind):
        return _foreign(kind)
    name = f"geokv.coordinator.faults.{kind.replace('-', '_')}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ConfigError(
            f"timeline: nothing here can make the fault {kind}",
            "docs/scenarios.md lists the kinds of faults",
        ) from None
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Fault) and value.__module__ == name:
            return value
    raise ConfigError(f"timeline: {name} has no fault")


def _foreign(name: str) -> type[Fault[Any]]:
    found = foreign.load("", name)
    if not isinstance(found, type) or not issubclass(found, Fault):
        raise ConfigError(f"fault {name}: is no subclass of geokv.Fault")
    undone = sorted(found.__abstractmethods__)
    if undone:
        raise ConfigError(f"fault {name}: has no {', '.join(undone)}")
    return found
