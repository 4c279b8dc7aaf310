"""The thread that polls an engine."""

from __future__ import annotations

import asyncio
import threading

import pytest

from geokv.cache.substrate.worker_thread import PollingThread
from geokv.errors import CacheError


async def test_a_cancelled_call_does_not_end_the_thread() -> None:
    thread = PollingThread("t", lambda: False, 0.001, 0.001)
    go = threading.Event()
    blocking = thread.submit(lambda: go.wait(5))
    waiting = asyncio.ensure_future(thread.ask(lambda: 1))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    go.set()
    assert blocking.result(5) is True
    assert thread.do(lambda: 2, 5) == 2
    with pytest.raises(ZeroDivisionError):
        thread.do(lambda: 1 // 0, 5)
    thread.end()
    with pytest.raises(CacheError, match="has ended"):
        thread.do(lambda: 3, 5)


async def test_a_failing_engine_is_told_to_whoever_asks_next() -> None:
    looks = []

    def poll() -> bool:
        looks.append(1)
        if len(looks) > 3:
            raise OSError("device lost")
        return True

    thread = PollingThread("t", poll, 0.0001, 1)
    thread._thread.join(5)
    assert len(looks) == 4
    with pytest.raises(CacheError, match=r"has ended \(device lost\)"):
        thread.do(lambda: 3, 5)
