"""What computing costs: the time it takes, or the time a GPU profile charges.

A GPU is one serial resource; its copy engine is a second one that works beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from geokv.clock import now_ns, wait_until_ns
from geokv.engine.profile import GpuProfile
from geokv.errors import EngineError
from geokv.units import NS_PER_S

T = TypeVar("T")
Work = Callable[[], T]
Direction = Literal["host_to_device", "device_to_host"]


@dataclass(frozen=True)
class StepLoad:
    """What one step of a batch asks of a device.

    Args:
        prefill: ``(new tokens, tokens before them)`` of each prefill chunk.
        decode: tokens of context of each decoding sequence, its new one included.
        rows: rows of logits.
    """

    prefill: tuple[tuple[int, int], ...]
    decode: tuple[int, ...]
    rows: int


@dataclass(frozen=True)
class Stage:
    """One of the equal parts of a step that reads KV while it still comes in.

    Args:
        ready: returns when what this part reads is here, or raises.
        work: computes the part.
    """

    ready: Callable[[], Awaitable[None]]
    work: Work[None]


class Compute(Protocol):
    """Runs work and lets the time it stands for pass."""

    @property
    def late_ns(self) -> int:
        """Time by which work outlasted its charge, summed since the start."""
        ...

    async def step(self, work: Work[T], load: StepLoad, follows: bool = False) -> T:
        """Run ``work``, one step of a batch.

        Args:
            follows: the device had this step to do when it ended the one before, so
                nothing passes between the two.
        """
        ...

    async def stages(self, stages: Sequence[Stage], load: StepLoad) -> None:
        """Run one step part by part; each begins when it is ready and the one before it ended.

        The device serves nobody else meanwhile, also while it waits.
        """
        ...

    async def copy(self, n_bytes: int, operations: int, direction: Direction) -> None:
        """Let a host-device copy pass.

        Args:
            n_bytes: bytes the run *stands for*, not what the small model really holds.
            operations: separate copies they are made in.
        """
        ...

    async def aclose(self) -> None:
        """Wait for running work and free the thread."""
        ...


class RealCompute:
    """Time is what it took. Work runs on one thread beside the event loop.

    Copies are real memory copies that the caller has made, so nothing is added, and
    nothing can be late.
    """

    late_ns = 0

    def __init__(self) -> None:
        self._device = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="geokv-device")

    async def step(self, work: Work[T], load: StepLoad, follows: bool = False) -> T:
        """Run ``work``; the load changes nothing."""
        async with self._device:
            return await _in_thread(self._thread, work)

    async def stages(self, stages: Sequence[Stage], load: StepLoad) -> None:
        """Run each part as soon as it can."""
        async with self._device:
            for stage in stages:
                await stage.ready()
                await _in_thread(self._thread, stage.work)

    async def copy(self, n_bytes: int, operations: int, direction: Direction) -> None:
        """Pass no time."""
        _check_copy(n_bytes, operations)

    async def aclose(self) -> None:
        """Wait for running work and end the thread."""
        async with self._device:
            self._thread.shutdown()


class ChargedCompute:
    """Work really runs, then time passes until the profile's charge is used up.

    The charge counts from the moment the device is free, so work that computes faster
    than the charge (in virtual time: all work) leaves exact times. Work that takes
    longer is summed in ``late_ns``: such a run does not stand for the profile.

    Args:
        threaded: run work on a thread beside the event loop. Off by default: inline
            work is deterministic and in virtual time costs nothing. Switch it on
            under a wall clock, where inline work would stall the site's network.
    """

    def __init__(self, profile: GpuProfile, threaded: bool = False) -> None:
        self.profile = profile
        self.slowness = 1.0
        """Everything takes so many times as long (a throttled or shared GPU)."""
        self._device = _Serial()
        self._copies = _Serial()
        self._thread = ThreadPoolExecutor(1, "geokv-device") if threaded else None

    @property
    def late_ns(self) -> int:
        """Time by which work outlasted its charge, summed."""
        return self._device.late_ns

    async def step(self, work: Work[T], load: StepLoad, follows: bool = False) -> T:
        """Run ``work`` and charge ``profile.step_s(…)`` of ``load``."""
        seconds = self.profile.step_s(load.prefill, load.decode, load.rows) * self.slowness
        async with self._device.turn(follows) as turn:
            turn.end_ns = turn.start_ns + round(seconds * NS_PER_S)
            return await _in_thread(self._thread, work) if self._thread else work()

    async def stages(self, stages: Sequence[Stage], load: StepLoad) -> None:
        """Run the parts and charge each an equal share of ``profile.step_s(…)``."""
        seconds = self.profile.step_s(load.prefill, load.decode, load.rows) * self.slowness
        share_ns = round(seconds / len(stages) * NS_PER_S)
        async with self._device.turn() as turn:
            for stage in stages:
                await stage.ready()
                turn.end_ns = max(turn.end_ns, now_ns()) + share_ns
                if self._thread:
                    await _in_thread(self._thread, stage.work)
                else:
                    stage.work()

    async def copy(self, n_bytes: int, operations: int, direction: Direction) -> None:
        """Charge the copy engine, which serves both directions in turn."""
        _check_copy(n_bytes, operations)
        seconds = self.profile.copy_s(n_bytes, operations) * self.slowness
        async with self._copies.turn() as turn:
            turn.end_ns = turn.start_ns + round(seconds * NS_PER_S)

    async def aclose(self) -> None:
        """Wait for running work and end the thread, if there is one."""
        async with self._device.turn():
            if self._thread is not None:
                self._thread.shutdown()


@dataclass
class _Turn:
    """A stretch of a serial resource; whoever has it says when it ends."""

    start_ns: int
    end_ns: int


class _Serial:
    """A resource that serves one turn at a time; queued turns follow without a gap."""

    def __init__(self) -> None:
        self.late_ns = 0
        self._lock = asyncio.Lock()
        self._free_ns = 0

    @asynccontextmanager
    async def turn(self, follows: bool = False) -> AsyncIterator[_Turn]:
        """Run the body, then wait until the turn's ``end_ns``.

        A turn that had to queue starts when the one before it ended, not some µs
        later when its task was woken. One that fails or is cancelled ends there.

        Args:
            follows: the turn was known when the one before it ended, and starts there.
        """
        arrival_ns = self._free_ns if follows else now_ns()
        async with self._lock:
            start_ns = max(arrival_ns, self._free_ns)
            turn = _Turn(start_ns, start_ns)
            done_ns = None
            try:
                yield turn
                self.late_ns += max(0, now_ns() - turn.end_ns)
                done_ns = max(now_ns(), turn.end_ns)
                await wait_until_ns(turn.end_ns)
            except BaseException:
                done_ns = None
                raise
            finally:
                self._free_ns = done_ns if done_ns is not None else now_ns()


async def _in_thread(thread: ThreadPoolExecutor, work: Work[T]) -> T:
    """Run ``work`` on ``thread``; a cancelled caller leaves only after it has ended.

    Work writes into blocks that the caller frees when it leaves.
    """
    future = asyncio.get_running_loop().run_in_executor(thread, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            try:
                await asyncio.shield(asyncio.wait([future]))
            except asyncio.CancelledError:
                continue
        raise


def _check_copy(n_bytes: int, operations: int) -> None:
    if n_bytes < 0 or operations < 0:
        raise EngineError(f"a copy of {n_bytes} bytes in {operations} operations makes no sense")
