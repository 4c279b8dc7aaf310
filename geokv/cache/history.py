"""The record of every block operation, from which a checker can judge a run alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Sink = Callable[[dict[str, Any]], None]


class History:
    """Writes events ``{t_ns, site, op, key, …}`` to a sink.

    Operations: store, publish, withdraw, lookup, fetch, convert, serve, evict, demote,
    promote, drop, miss, pushed, replicate, found, use (audited sites only), disk-index, disk-down,
    disk-up. Of a site with tiers ``tier`` says where, and ``place`` in which of the
    tier's places: from the event that makes a chunk readable there to the one that takes
    it away the place is that chunk's alone.
    """

    def __init__(self, site: str, sink: Sink | None, clock: Callable[[], int]) -> None:
        self._site = site
        self._sink = sink
        self._clock = clock

    def note(self, op: str, key: bytes | None = None, **more: Any) -> int:
        """One event; keys are written in hex.

        Returns:
            Its stamp; 0 where no history is kept.
        """
        if self._sink is None:
            return 0
        event: dict[str, Any] = {"t_ns": self._clock(), "site": self._site, "op": op}
        if key is not None:
            event["key"] = key.hex()
        event.update(more)
        self._sink(event)
        return int(event["t_ns"])
