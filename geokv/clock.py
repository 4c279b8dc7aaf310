"""The one clock of a run, and time that is charged instead of spent.

Every stamp is ``CLOCK_MONOTONIC`` in ns. All namespaces of a lab share one kernel,
so stamps of different sites compare directly and one-way times are real.

asyncio rounds its timers up to the next ms, which is twice the light of 100 km.
Whatever stands for GPU or device time therefore waits on a timerfd, exact to the
kernel's own timer.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

from geokv.units import NS_PER_S

_CLOCK_MONOTONIC = 1
_TFD_CLOEXEC = 0o2000000
_TFD_NONBLOCK = 0o4000
_TFD_TIMER_ABSTIME = 1
_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


BEAT_NS = 100_000_000
"""A whole number of the kernel's own ticks (10 ms)."""

now_ns: Callable[[], int] = time.monotonic_ns
"""The clock of a run, in ns; in virtual time each reading takes 256 of them."""


async def on_the_beat() -> int:
    """Go on at the next whole tenth of a second; returns it.

    Reading the clock costs virtual time, so what came before takes some µs more or less: in a
    first run Python compiles, in a second it does not, and another version imports other files.
    The kernel rounds to its own ticks; from a beat on, every run is rounded alike (INV-9).
    """
    beat_ns = (now_ns() // BEAT_NS + 1) * BEAT_NS
    await wait_until_ns(beat_ns)
    return beat_ns


async def wait_until_ns(deadline_ns: int) -> None:
    """Return when the monotonic clock has reached ``deadline_ns``; at once if it is past.

    Other tasks get a turn either way.

    Raises:
        OSError: no timer descriptor could be made.
    """
    if deadline_ns <= now_ns():
        # Who is always late must not keep the event loop for itself.
        await asyncio.sleep(0)
        return
    loop = asyncio.get_running_loop()
    descriptor = _timer(deadline_ns)
    fired = loop.create_future()

    def on_readable() -> None:
        if not fired.done():
            fired.set_result(None)

    loop.add_reader(descriptor, on_readable)
    try:
        await fired
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _timer(deadline_ns: int) -> int:
    descriptor = _libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_CLOEXEC | _TFD_NONBLOCK)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create failed")
    seconds, nanoseconds = divmod(deadline_ns, NS_PER_S)
    spec = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
    if _libc.timerfd_settime(descriptor, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) < 0:
        error = ctypes.get_errno()
        os.close(descriptor)
        raise OSError(error, "timerfd_settime failed")
    return int(descriptor)
