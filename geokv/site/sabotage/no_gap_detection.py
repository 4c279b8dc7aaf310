"""The table takes events as they come and does not look at their numbers.

Trips ``directory-converges`` after events were lost or overtook each other. Comparing finds the
same a little later, and what is told again later puts it right: a control needs a long
``cache.directory.anti_entropy`` beside it, and ``workload.cold: keep``.
"""

from __future__ import annotations

from collections.abc import Sequence

from geokv.cache.ownership.sequenced_table import SequencedTable
from geokv.site.sabotage._swap import swap
from geokv.site.worker import Worker


def plant(worker: Worker) -> None:
    """Patch the process: whatever comes is the next."""
    event = SequencedTable.event

    def credulous(
        self: SequencedTable, site: str, incarnation: int, seq: int, op: str, keys: Sequence[bytes]
    ) -> bool:
        self.join(site, incarnation)
        self._next[site] = seq
        return event(self, site, incarnation, seq, op, keys)

    swap(SequencedTable, "event", credulous)
