"""A directory's table that knows when it has missed something.

Every site numbers what it tells, from 1 in each of its lives. What comes out of turn says
that something was lost, repeated or overtaken: what is old is ignored, and after a gap
nothing of that site is believed to be in step until it has told all it has anew, in one
piece. Entries stay meanwhile: they are hints, and old hints are better than none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geokv.cache.history import History
from geokv.cache.ownership.central import CentralTable


class SequencedTable(CentralTable):
    """Key -> sites, fenced by incarnation, in step with each site or aware that it is not.

    Args:
        epoch: of this table; another one began with nothing this one knows.
        history: told ``gap`` and ``resync``, both about ``of``, the site that told.
    """

    def __init__(self, epoch: int, history: History) -> None:
        super().__init__()
        self.epoch = epoch
        self._history = history
        self._next: dict[str, int] = {}
        self._sums: dict[str, int] = {}
        self._lapsed: dict[str, None] = {}

    def join(self, site: str, incarnation: int) -> int:
        """As of ``CentralTable``; a new life begins to count anew."""
        known = self._lives.get(site)
        forgotten = super().join(site, incarnation)
        if known != incarnation:
            self._next[site] = 1
            self._lapsed.pop(site, None)
        return forgotten

    def event(self, site: str, incarnation: int, seq: int, op: str, keys: Sequence[bytes]) -> bool:
        """``site`` tells that it has (``publish``) or no longer has (``withdraw``) ``keys``.

        Returns:
            False if the site must tell all it has anew.

        Raises:
            CacheError: that life is over.
        """
        self.join(site, incarnation)
        expected = self._next[site]
        if site in self._lapsed:
            return False
        if seq < expected:
            self.counters["old-events"] += 1
            return True
        if seq > expected:
            self._lapse(site, "gap", expected, seq)
            return False
        self._next[site] = seq + 1
        if op == "publish":
            self.publish(site, incarnation, keys)
        else:
            self.withdraw(site, incarnation, keys)
        return True

    def resync(self, site: str, incarnation: int, seq: int, keys: Sequence[bytes]) -> None:
        """``site`` has exactly ``keys``, said as number ``seq``. One that has been overtaken
        by later events is ignored.

        Raises:
            CacheError: that life is over.
        """
        self.join(site, incarnation)
        expected = self._next[site]
        if seq < expected:
            self.counters["old-events"] += 1
            return
        self._lapsed.pop(site, None)
        self._next[site] = seq + 1
        wanted = dict.fromkeys(keys)
        self.withdraw(site, incarnation, [key for key in self.keys_of(site) if key not in wanted])
        self.publish(site, incarnation, keys)
        self.counters["resyncs"] += 1
        self._history.note("resync", of=site, expected=expected, got=seq, keys=len(wanted))

    def compare(self, site: str, incarnation: int, seq: int, count: int, total: int) -> bool:
        """Does the table agree with what ``site`` believes to have told it?

        Args:
            seq: the number of the next event.
            count, total: how many keys, and their sum (``key_sum``).

        Raises:
            CacheError: that life is over.
        """
        self.join(site, incarnation)
        self.counters["compared"] += 1
        if site in self._lapsed:
            return False
        expected = self._next[site]
        if seq < expected:
            # Something has been told since this was said, and heard before it.
            return True
        same = count == len(self.keys_of(site)) and total == self._sums.get(site, 0)
        if seq == expected and same:
            return True
        self._lapse(site, "gap" if seq != expected else "digest", expected, seq)
        return False

    def knows(self, site: str, incarnation: int) -> bool:
        """Is the table in step with this life of ``site``, as far as it can tell?"""
        return self._lives.get(site) == incarnation and site not in self._lapsed

    def forget(self, site: str) -> int:
        """``site`` is down: its entries go. If it comes back it must tell all anew."""
        gone = self.keys_of(site)
        if site in self._lives:
            self._lapsed[site] = None
            self._remove(site, gone)
            self.counters["forgotten"] += len(gone)
        return len(gone)

    def keys_of(self, site: str) -> list[bytes]:
        """What ``site`` is believed to have."""
        return list(self._keys.get(site, ()))

    def copied(self, epoch: int) -> SequencedTable:
        """A table that begins with what this one knows now."""
        twin = SequencedTable(epoch, self._history)
        twin._lives = dict(self._lives)
        twin._sites = {key: dict(sites) for key, sites in self._sites.items()}
        twin._keys = {site: dict(keys) for site, keys in self._keys.items()}
        twin._next, twin._sums = dict(self._next), dict(self._sums)
        twin._lapsed = dict(self._lapsed)
        return twin

    def stats(self) -> dict[str, Any]:
        """Counters, and how far each site has come."""
        return {**self.counters, "epoch": self.epoch, "lapsed": list(self._lapsed)}

    # -- inside ----------------------------------------------------------------

    def _lapse(self, site: str, why: str, expected: int, got: int) -> None:
        self._lapsed[site] = None
        self.counters[why] += 1
        self._history.note("gap", of=site, why=why, expected=expected, got=got)

    def _add(self, site: str, keys: Sequence[bytes]) -> None:
        mine = self._keys.get(site, {})
        for key in dict.fromkeys(keys):
            if key not in mine:
                self._sums[site] = key_sum(self._sums.get(site, 0), key)
        super()._add(site, keys)

    def _remove(self, site: str, keys: Sequence[bytes]) -> None:
        mine = self._keys.get(site, {})
        for key in dict.fromkeys(keys):
            if key in mine:
                self._sums[site] = key_sum(self._sums.get(site, 0), key)
        super()._remove(site, keys)


def key_sum(total: int, key: bytes) -> int:
    """``total`` with ``key`` added or, if it was in it, taken out: the exclusive or of all."""
    return total ^ int.from_bytes(key, "big")
