"""Weaknesses that a drill's negative control plants in every site, one per file.

Each shows that a checker can fail. Nothing here is imported unless a control asks for it.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from geokv.errors import ConfigError

if TYPE_CHECKING:
    from geokv.site.worker import Worker

__all__ = ["check_sabotage", "known_sabotages", "plant"]


def known_sabotages() -> list[str]:
    """Their names, sorted; nothing is imported."""
    found = [module.name for module in pkgutil.iter_modules(__path__)]
    return sorted(name.replace("_", "-") for name in found if not name.startswith("_"))


def check_sabotage(name: str) -> None:
    """Raises ConfigError: there is no such sabotage."""
    if name not in known_sabotages():
        raise ConfigError(
            f"control.sabotage: unknown {name!r}", f"known: {', '.join(known_sabotages())}"
        )


def plant(name: str, worker: Worker) -> None:
    """Make a site that is built and does not serve yet do one thing wrong.

    Raises:
        ConfigError: there is no such sabotage.
    """
    check_sabotage(name)
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    module.plant(worker)
