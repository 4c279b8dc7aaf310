"""Sites never compare what they have with what the table knows of them.

Trips ``directory-converges`` where nothing later gives it away: the last event before all is
quiet was lost, or a site comes back to a table that has forgotten it.
"""

from __future__ import annotations

from geokv.cache.ownership import SequencedDirectory
from geokv.errors import RunError
from geokv.site.sabotage._swap import swap
from geokv.site.worker import Worker


def plant(worker: Worker) -> None:
    """Patch this worker's way to the table.

    Raises:
        RunError: its directory compares nothing anyway.
    """

    async def nothing() -> None:
        return None

    swap(sequenced(worker), "_compare", nothing)


def sequenced(worker: Worker) -> SequencedDirectory:
    """Raises RunError: the events of this deployment's directory are not numbered."""
    directory = worker.cache.directory
    if not isinstance(directory, SequencedDirectory):
        raise RunError(
            "a sabotage cannot be planted: the directory's events are not numbered",
            "set cache.directory.anti_entropy",
        )
    return directory
