"""One timer for many deadlines: nobody is missed, nobody is called early or twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from geokv.cache.substrate.tcp.deadlines import Deadlines
from geokv.clock import now_ns

MS = 10**6


@dataclass(eq=False)
class Watched:
    deadline_ns: int
    called: asyncio.Event = field(default_factory=asyncio.Event)


async def both(*ones: Watched) -> None:
    async with asyncio.timeout(5):
        for one in ones:
            await one.called.wait()


async def test_each_is_called_once_at_its_own_deadline_in_whatever_order_they_came() -> None:
    calls: list[tuple[Watched, int]] = []

    def late(one: Watched) -> None:
        calls.append((one, now_ns()))
        one.called.set()

    deadlines: Deadlines[Watched] = Deadlines(late)
    start = now_ns()
    ones = [Watched(start + ms * MS) for ms in (30, 10, 20, 10, -5)]
    for one in ones:
        deadlines.watch(one)
    await both(*ones)
    await asyncio.sleep(0.01)
    assert [one for one, _ in calls] == [ones[i] for i in (4, 1, 3, 2, 0)]
    assert all(at >= one.deadline_ns for one, at in calls)


async def test_what_has_ended_is_left_alone_and_what_came_since_is_not_missed() -> None:
    called: list[Watched] = []
    deadlines: Deadlines[Watched] = Deadlines(called.append)
    start = now_ns()
    ended, open_ = Watched(start + 10 * MS), Watched(start + 30 * MS)
    deadlines.watch(ended)
    deadlines.forget(ended)
    deadlines.forget(ended)
    deadlines.watch(open_)  # the timer is still set for the one that ended
    await asyncio.sleep(0.02)
    assert called == []
    await asyncio.sleep(0.02)
    assert called == [open_]


async def test_requests_one_after_the_other_share_one_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    set_, call_at = [], loop.call_at

    def counted(when: float, *rest: Any, **more: Any) -> asyncio.TimerHandle:
        set_.append(when)
        return call_at(when, *rest, **more)

    monkeypatch.setattr(loop, "call_at", counted)
    deadlines: Deadlines[Watched] = Deadlines(lambda one: None)
    for _ in range(1000):
        one = Watched(now_ns() + 10_000 * MS)
        deadlines.watch(one)
        deadlines.forget(one)
    deadlines.close()
    assert len(set_) == 1


async def test_a_fault_with_one_does_not_keep_the_others_waiting() -> None:
    faults: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(str(context["exception"])))

    def late(one: Watched) -> None:
        one.called.set()
        raise RuntimeError("late")

    deadlines: Deadlines[Watched] = Deadlines(late)
    start = now_ns()
    ones = [Watched(start + ms * MS) for ms in (5, 5, 10)]
    for one in ones:
        deadlines.watch(one)
    await both(*ones)
    assert faults == ["late"] * 3


async def test_nobody_is_called_after_the_end() -> None:
    called: list[Watched] = []
    deadlines: Deadlines[Watched] = Deadlines(called.append)
    deadlines.watch(Watched(now_ns() + 5 * MS))
    deadlines.close()
    await asyncio.sleep(0.01)
    assert called == []
