from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from geokv.clock import now_ns
from geokv.engine import compute
from geokv.engine.compute import ChargedCompute, RealCompute, StepLoad
from geokv.engine.profile import load_profile
from geokv.errors import EngineError


class FakeClock:
    """Time that passes only where the code waits for it."""

    def __init__(self) -> None:
        self.now = 1_000
        self.wake_ns = 0
        self.waited: list[int] = []

    async def wait_until_ns(self, deadline_ns: int) -> None:
        await asyncio.sleep(0)
        self.waited.append(deadline_ns)
        self.now = max(self.now, deadline_ns) + self.wake_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    monkeypatch.setattr(compute, "now_ns", lambda: fake.now)
    monkeypatch.setattr(compute, "wait_until_ns", fake.wait_until_ns)
    return fake


PREFILL = StepLoad(prefill=((10, 0),), decode=(), rows=1)


def decode(*contexts: int) -> StepLoad:
    return StepLoad(prefill=(), decode=contexts, rows=len(contexts))


def profile(prefill_s: float = 2e-6, decode_s: float = 1e-6, copy_s: float = 3e-6) -> Any:
    return SimpleNamespace(
        step_s=lambda prefill, decode, rows: prefill_s * len(prefill) + decode_s * len(decode),
        copy_s=lambda n_bytes, operations: copy_s * operations,
    )


async def test_charge_is_exact_to_the_ns_and_counts_the_work(clock: FakeClock) -> None:
    charged = ChargedCompute(profile())

    def work() -> str:
        clock.now += 700
        return "done"

    assert await charged.step(work, PREFILL) == "done"
    assert clock.now == 1_000 + 2_000
    assert await charged.step(work, decode(1, 2)) == "done"
    assert clock.now == 3_000 + 2_000
    assert charged.late_ns == 0


async def test_work_that_outlasts_its_charge_is_counted(clock: FakeClock) -> None:
    charged = ChargedCompute(profile())

    def slow() -> None:
        clock.now += 5_000

    await charged.step(slow, PREFILL)
    assert (clock.now, charged.late_ns) == (6_000, 3_000)
    await charged.step(lambda: None, PREFILL)
    assert clock.now == 8_000


async def test_queued_turns_follow_one_another_whatever_waking_up_takes(clock: FakeClock) -> None:
    clock.wake_ns = 300
    charged = ChargedCompute(profile())
    await asyncio.gather(*(charged.step(lambda: None, PREFILL) for _ in range(3)))
    assert clock.waited == [3_000, 5_000, 7_000]
    # One that did not queue starts when it arrives, never before.
    clock.now = 7_200
    await charged.step(lambda: None, PREFILL)
    assert clock.waited[-1] == 9_200


async def test_a_step_that_follows_starts_where_the_one_before_it_ended(clock: FakeClock) -> None:
    clock.wake_ns = 300
    charged = ChargedCompute(profile())
    await charged.step(lambda: None, PREFILL)
    for _ in range(3):
        clock.now += 4_00
        await charged.step(lambda: None, PREFILL, follows=True)
    assert clock.waited == [3_000, 5_000, 7_000, 9_000]
    assert charged.late_ns == 0


async def test_a_mixed_step_is_charged_as_one(clock: FakeClock) -> None:
    charged = ChargedCompute(profile())
    await charged.step(lambda: None, StepLoad(((10, 0), (5, 3)), (7, 8, 9), 4))
    assert clock.waited == [1_000 + 2 * 2_000 + 3 * 1_000]


async def test_a_gpu_serves_one_turn_at_a_time() -> None:
    charged = ChargedCompute(profile(prefill_s=0.02))
    ends: list[int] = []

    async def one() -> None:
        await charged.step(lambda: None, PREFILL)
        ends.append(now_ns())

    start = now_ns()
    await asyncio.gather(one(), one(), one())
    for index, end in enumerate(ends, 1):
        assert end - start >= index * 20_000_000


async def test_copies_pass_beside_compute_but_not_beside_each_other() -> None:
    charged = ChargedCompute(profile(prefill_s=0.05, copy_s=0.025))
    start = now_ns()
    await asyncio.gather(
        charged.step(lambda: None, PREFILL),
        charged.copy(1, 1, "host_to_device"),
        charged.copy(1, 1, "device_to_host"),
    )
    assert 50_000_000 <= now_ns() - start < 74_000_000


async def test_a_cancelled_turn_gives_the_device_back_at_once(clock: FakeClock) -> None:
    real_wait = clock.wait_until_ns
    charged = ChargedCompute(profile(prefill_s=1e-3))

    async def hang(deadline_ns: int) -> None:
        await asyncio.sleep(60)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compute, "wait_until_ns", hang)
        task = asyncio.create_task(charged.step(lambda: None, PREFILL))
        await asyncio.sleep(0.01)
        clock.now += 100
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert compute.wait_until_ns == real_wait
    await charged.step(lambda: None, PREFILL)
    assert clock.now == 1_100 + 1_000_000


async def test_a_failing_work_frees_the_device(clock: FakeClock) -> None:
    charged = ChargedCompute(profile())

    def fail() -> None:
        raise EngineError("broken")

    with pytest.raises(EngineError, match="broken"):
        await charged.step(fail, decode(5))
    await charged.step(lambda: None, decode(5))
    assert clock.now == 2_000


@pytest.mark.parametrize("kind", ["real", "charged"])
async def test_threaded_work_keeps_the_loop_free_and_outlives_its_cancelled_caller(
    kind: str,
) -> None:
    device = RealCompute() if kind == "real" else ChargedCompute(profile(), threaded=True)
    seen: list[str] = []
    release = threading.Event()

    def work() -> None:
        release.wait(10)
        time.sleep(0.02)
        seen.append("ended")

    task = asyncio.create_task(device.step(work, PREFILL))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    task.cancel()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["ended"]
    assert await device.step(lambda: 7, decode(1)) == 7
    await device.aclose()


async def test_a_real_charge_is_exact_and_uses_the_profile() -> None:
    h100 = load_profile("llama-3.1-8b@h100-sxm")
    charged = ChargedCompute(h100)
    start = now_ns()
    await charged.step(lambda: None, StepLoad(((128, 8192),), (), 1))
    passed = (now_ns() - start) / 1e9
    # Never early; how late depends on who else is computing here.
    assert 0 <= passed - h100.prefill_s(128, 8192) < 1


async def test_senseless_copies_are_refused() -> None:
    for device in (RealCompute(), ChargedCompute(load_profile("llama-3.1-8b@h100-sxm"))):
        with pytest.raises(EngineError, match="makes no sense"):
            await device.copy(-1, 1, "host_to_device")
        await device.copy(0, 0, "host_to_device")
        await device.aclose()
