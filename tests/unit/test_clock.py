"""Waiting on the clock: never less than asked, and other tasks go on meanwhile."""

from __future__ import annotations

import asyncio
import time

from geokv.clock import now_ns, wait_until_ns


async def test_a_wait_never_ends_early() -> None:
    for duration_ns in (100_000, 500_000, 3_000_000):
        deadline_ns = now_ns() + duration_ns
        await wait_until_ns(deadline_ns)
        assert now_ns() >= deadline_ns


async def test_what_is_past_is_not_waited_for() -> None:
    started = time.monotonic()
    await wait_until_ns(0)
    await wait_until_ns(now_ns() - 10**9)
    assert time.monotonic() - started < 0.5


async def test_waits_pass_side_by_side() -> None:
    started = now_ns()
    await asyncio.gather(*(wait_until_ns(started + 200_000_000) for _ in range(10)))
    assert 0.2e9 <= now_ns() - started < 1.9e9


async def test_a_caller_that_is_always_late_lets_others_go_on() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for _ in range(10):
        await wait_until_ns(1)
    task.cancel()
    assert turns >= 9
