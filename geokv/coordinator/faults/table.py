"""The site that keeps the directory's table, and what becomes of the table there."""

from __future__ import annotations

from typing import Any

from geokv.coordinator.drill.stage import Stage
from geokv.errors import FaultError
from geokv.scenario.directory import CentralDirectory


def table_site(stage: Stage) -> str:
    """Raises FaultError: no site keeps one."""
    directory = stage.scenario.cache.directory
    if not isinstance(directory, CentralDirectory):
        raise FaultError("no site keeps a table", "set cache.directory.kind central")
    return directory.site


async def order(stage: Stage, do: str, how: str = "empty") -> dict[str, Any]:
    """``keep``, ``stop`` or ``start`` the table; the directory's stats afterwards.

    Raises:
        RunError: the site does not answer, or its directory's events are not numbered.
    """
    return await stage.control(table_site(stage)).post("/directory", do=do, how=how)


def senders(stage: Stage) -> list[str]:
    """Running sites whose events travel to the table."""
    keeper = table_site(stage)
    return [site for site in stage.sites if site != keeper and stage.is_up(site)]
