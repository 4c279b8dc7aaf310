"""One stretch of memory, allocated and touched once."""

from __future__ import annotations

from geokv.errors import CacheError
from geokv.memory import populated_memory
from geokv.units import show_size


def touched_memory(size_bytes: int) -> memoryview:
    """Writable memory whose pages are all present.

    Raises:
        CacheError: the system has not that much memory to give.
    """
    try:
        return populated_memory(size_bytes)
    except OSError as error:
        raise CacheError(
            f"no memory for a tier of {show_size(size_bytes)} ({error.strerror})",
            "make the tier smaller or the VM's memory larger",
        ) from None
