"""Faults that a drill's timeline can name: one per file, called after its kind."""

from __future__ import annotations

import importlib
from typing import Any

from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.errors import ConfigError

__all__ = ["Evidence", "Fault", "fault_class"]


def fault_class(kind: str) -> type[Fault[Any]]:
    """The fault of a kind, from the module that is called after it.

    Raises:
        ConfigError: there is no such module.
    """
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
