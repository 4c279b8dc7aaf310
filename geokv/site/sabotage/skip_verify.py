"""What came over the wire is taken as it is: its checksums are not looked at.

Trips ``corrupt`` and, as what is wrong is used, ``answered-wrongly``.
"""

from __future__ import annotations

from geokv.cache.record import ChunkHeader
from geokv.cache.substrate.tcp import requests
from geokv.site.worker import Worker


def plant(worker: Worker) -> None:
    """Patch the process: every GET believes its header."""

    def believed(self: requests.GetRequest, header: ChunkHeader) -> ChunkHeader:
        return header

    requests.GetRequest._compared = believed  # type: ignore[method-assign]
