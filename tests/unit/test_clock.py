"""Charged time: never less than asked, and other tasks go on meanwhile."""

from __future__ import annotations

import asyncio
import time

from geokv.clock import charge, now_ns, wait_until_ns


async def test_a_charge_never_ends_early() -> None:
    for seconds in (0.0001, 0.0005, 0.003):
        started = now_ns()
        await charge(seconds)
        assert now_ns() - started >= seconds * 1e9


async def test_nothing_is_charged_for_nothing_and_for_the_past() -> None:
    started = time.monotonic()
    await charge(0)
    await charge(-1)
    await wait_until_ns(now_ns() - 10**9)
    assert time.monotonic() - started < 0.5


async def test_charges_pass_side_by_side() -> None:
    started = now_ns()
    await asyncio.gather(*(charge(0.2) for _ in range(10)))
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
