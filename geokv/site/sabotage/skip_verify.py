"""What comes over the wire, from the disk or out of memory is taken as it is: its checksums are not
looked at.

Trips ``corrupt`` and, as what is wrong is used, ``answered-wrongly``; synthetic content notices
that it is wrong and gives no answer, which ``expect:answered`` shows.
"""

from __future__ import annotations

from pathlib import Path

from geokv.cache.layout import ChunkLayout
from geokv.cache.locality import disk
from geokv.cache.locality.disk_file import inspect_file, read_file
from geokv.cache.record import ChunkHeader
from geokv.cache.substrate.tcp.get_request import GetRequest
from geokv.errors import RecordError
from geokv.site.sabotage._swap import swap
from geokv.site.worker import Worker


def plant(worker: Worker) -> None:
    """Patch the process: every GET and every file believes its header."""

    def believed(self: GetRequest, header: ChunkHeader) -> ChunkHeader:
        return header

    def read(path: Path, layout: ChunkLayout, into: memoryview) -> ChunkHeader:
        try:
            return read_file(path, layout, into)
        except RecordError:
            # All of it has been read by the time its payload is found to be wrong.
            return inspect_file(path).header

    swap(GetRequest, "_compared", believed)
    swap(disk, "read_file", read)
    swap(worker.cache._fetcher, "_rotten", lambda entry: False)
