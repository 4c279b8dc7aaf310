"""Names of code that is no part of geokv, and which of them packages have registered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from geokv.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

EVICTION = "geokv.eviction"
"""Entry point group of eviction policies."""
ROUTING = "geokv.routing"
"""Entry point group of routing policies."""
REFERENCE = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
"""``module:Class`` or ``package.module:Class``."""
_NAME = r"^[A-Za-z0-9][\w.-]*$"
"""What a package can register."""


def is_reference(text: str) -> bool:
    """Whether it is written as ``module:Class``."""
    return re.match(REFERENCE, text) is not None


def registered(group: str, folders: Sequence[str] = ()) -> list[str]:
    """Names that packages have registered, sorted: installed ones, and those in ``folders``."""
    return sorted({entry.name for entry in entries(group, folders)})


def well_formed(name: str, ours: Sequence[str], group: str) -> str:
    """The name itself, if it is one of ours, a reference, or could be registered.

    Whether it is registered is asked of scenarios that somebody wrote (``require_known``), not of
    those a run folder keeps: these are read where the package may not be.

    Raises:
        ValueError: it is none of them; for a field's validator.
    """
    if name in ours or is_reference(name) or re.match(_NAME, name):
        return name
    raise ValueError(_choices(name, ours, group, ()))


def require_known(name: str, ours: Sequence[str], group: str, folders: Sequence[str]) -> None:
    """Raises ConfigError: the name is none of ours, no reference, and nobody has registered it."""
    if name not in ours and not is_reference(name) and name not in registered(group, folders):
        raise ConfigError(
            _choices(name, ours, group, folders),
            "a package registers a name when it is installed where geokv is, or in a folder of "
            "`code` or PYTHONPATH",
        )


def _choices(name: str, ours: Sequence[str], group: str, folders: Sequence[str]) -> str:
    names = [*ours, *registered(group, folders)]
    return f"must be {', '.join(names)} or module:Class, got {name!r}"


def entries(group: str, folders: Sequence[str] = ()) -> list[EntryPoint]:
    """Of packages that are installed, then of those in ``folders``."""
    # Imported late: a run with nothing but our own code looks at no package.
    from importlib.metadata import distributions, entry_points

    found = list(entry_points(group=group))
    if folders:
        for one in distributions(path=list(folders)):
            found += one.entry_points.select(group=group)
    return found
