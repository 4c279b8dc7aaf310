"""Whether a disk can be written to, and when to try again."""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Callable

from geokv.clock import now_ns
from geokv.units import NS_PER_S

_LONGEST_RETRY_S = 60.0
_log = logging.getLogger(__name__)


class Outage:
    """Counts failures; while the disk is down nothing is written to it.

    The first failure after a success is told once, further ones are only counted. A
    disk that is down is tried again after ``retry_s``, then twice that and so on, up
    to a minute, when somebody has something to write. The first write that works
    ends the outage.

    Attributes:
        on_change: told why the disk is down, and the empty text when it is up again.
        failures: by the error's name (``ENOSPC``, ``EIO`` …).
    """

    def __init__(self, retry_s: float) -> None:
        self.on_change: Callable[[str], None] | None = None
        self.failures: Counter[str] = Counter()
        self.outages = 0
        self.reason = ""
        self._first_retry_ns = round(retry_s * NS_PER_S)
        self._retry_ns = self._first_retry_ns
        self._due_ns = 0

    @property
    def down(self) -> bool:
        """Whether the disk has refused and nothing could be written since."""
        return bool(self.reason)

    @property
    def may_try(self) -> bool:
        """Is the disk up, or is it time to see whether it is?"""
        return not self.down or now_ns() >= self._due_ns

    def fail(self, doing: str, error: OSError) -> None:
        """The disk refused."""
        self.failures[errno.errorcode.get(error.errno or 0, "unknown")] += 1
        if self.down and now_ns() < self._due_ns:
            return
        self._due_ns = now_ns() + self._retry_ns
        self._retry_ns = min(2 * self._retry_ns, round(_LONGEST_RETRY_S * NS_PER_S))
        if self.down:
            return
        self.outages += 1
        self.reason = f"{doing}: {error.strerror or error}"
        _log.warning("%s; chunks stay in dram until the disk can be written again", self.reason)
        self._tell()

    def work(self) -> None:
        """The disk took something."""
        self._retry_ns = self._first_retry_ns
        if self.down:
            self.reason = ""
            self._tell()

    def _tell(self) -> None:
        if self.on_change is not None:
            self.on_change(self.reason)
