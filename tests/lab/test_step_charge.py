"""A charged step takes exactly its time, steps follow without a gap, devices do not share."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from lone_worker import settings_of

from geokv.clock import now_ns, wait_until_ns
from geokv.coordinator.client import Question
from geokv.coordinator.fleet import Fleet
from geokv.engine.compute import ChargedCompute, StepLoad
from geokv.engine.engine import Engine
from geokv.engine.loop import EngineLoop
from geokv.engine.profile import load_profile
from geokv.engine.request import Prompt
from geokv.engine.sampling import SamplingParams
from geokv.engine.scheduler import SchedulerSettings
from geokv.engine.synthetic import SyntheticModel
from geokv.engine.tiny import TINY
from geokv.scenario.deployment import Deployment
from geokv.units import NS_PER_S

PROFILE = load_profile(Deployment.model_fields["stands_for"].default)
EXACT_NS = 2_000


class Noting(ChargedCompute):
    """Keeps what each step was charged for."""

    def __init__(self) -> None:
        super().__init__(PROFILE)
        self.loads: list[StepLoad] = []

    async def step(self, work, load, follows=False):
        self.loads.append(load)
        return await super().step(work, load, follows)

    def charged_ns(self) -> int:
        return sum(
            round(PROFILE.step_s(load.prefill, load.decode, load.rows) * NS_PER_S)
            for load in self.loads
        )


def make(compute: ChargedCompute, **settings) -> EngineLoop:
    engine = Engine(SyntheticModel(TINY), 2000, compute)
    return EngineLoop(engine, SchedulerSettings(**settings))


async def answered(loop: EngineLoop, tokens: list[int], max_tokens: int) -> list[int]:
    """When its first step began and ended, when further tokens came, and when it was done."""
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    request = loop.submit(Prompt(tokens, b"root", params, reuse=False))
    came_ns = [now_ns() async for _ in request]
    stamps = request.stamps
    return [stamps.scheduled_ns, stamps.prefilled_ns, *came_ns[1:-1], stamps.finished_ns]


async def beat() -> int:
    """A whole tenth of a second of virtual time."""
    at_ns = (now_ns() // 100_000_000 + 1) * 100_000_000
    await wait_until_ns(at_ns)
    return at_ns


@pytest.mark.parametrize("tokens", [1, 17, 512, 2048])
async def test_a_prefill_step_takes_its_charge(tokens):
    loop = make(ChargedCompute(PROFILE))
    began_ns, ended_ns, _ = await answered(loop, [1] * tokens, 1)
    charge_ns = round(PROFILE.prefill_s(tokens) * NS_PER_S)
    assert abs(ended_ns - began_ns - charge_ns) <= EXACT_NS
    await loop.aclose()


async def test_a_hundred_steps_have_no_gaps():
    loop = make(ChargedCompute(PROFILE))
    params = SamplingParams(max_tokens=101, ignore_eos=True)
    request = loop.submit(Prompt([1] * 256, b"root", params, reuse=False))
    # All read at one point of the code: on the way from step to reader the clock is read
    # eight times or so, 256 ns each.
    came_ns = [now_ns() async for _ in request]
    steps_ns = [round(PROFILE.decode_s([256 + n]) * NS_PER_S) for n in range(1, 101)]
    assert abs(came_ns[-1] - came_ns[0] - sum(steps_ns)) <= EXACT_NS
    for n, step_ns in enumerate(steps_ns):
        assert abs(came_ns[n + 1] - came_ns[n] - step_ns) <= EXACT_NS
    await loop.aclose()


async def test_mixed_steps_add_up_however_requests_come():
    compute = Noting()
    loop = make(compute, max_batch_tokens=96)
    started_ns = await beat()

    async def later(tokens: int, after_s: float) -> list[int]:
        await wait_until_ns(started_ns + round(after_s * NS_PER_S))
        return await answered(loop, [tokens % 200] * tokens, 20)

    prompts = [(250, 0.0), (400, 0.0021), (31, 0.0077), (96, 0.05), (500, 0.1003)]
    came = await asyncio.gather(*(later(*prompt) for prompt in prompts))
    kinds = {(bool(load.prefill), bool(load.decode)) for load in compute.loads}
    assert kinds == {(True, False), (True, True), (False, True)}
    assert len(compute.loads) > 30
    busy_ns = max(times[-1] for times in came) - min(times[0] for times in came)
    assert abs(busy_ns - compute.charged_ns()) <= EXACT_NS
    await loop.aclose()


async def test_workers_in_one_process_never_slow_each_other():
    async def taken(loop: EngineLoop) -> int:
        began_ns, *came_ns = await answered(loop, [1] * 1500, 50)
        return came_ns[-1] - began_ns

    loops = [make(ChargedCompute(PROFILE)) for _ in range(4)]
    alone = await taken(loops[0])
    together = await asyncio.gather(*(taken(loop) for loop in loops))
    assert max(abs(one - alone) for one in together) <= EXACT_NS
    for loop in loops:
        await loop.aclose()


def test_sites_never_slow_each_other():
    with Fleet() as fleet:
        for name in ("a", "b"):
            fleet.start_site(settings_of(name), "/proc/self/ns/net")
            fleet.start_client(name, "/proc/self/ns/net")
        fleet.wait_ready()

        def spans(name: str, number: int) -> int:
            """Virtual ns from the first step to the last token."""
            site = fleet.sites[name]
            request_id = f"r{number}"
            question = Question(
                request_id,
                f"http://{site.settings.host}:{site.settings.api_port}/v1/completions",
                site.settings.tenants[0].api_key,
                site.settings.model,
                [number] * 3000,
                30,
                60.0,
            )
            assert fleet.clients[name].ask(question).error is None
            record = site.get(f"/requests/{request_id}")["record"]
            overlap.append((record["scheduled_ns"], record["finished_ns"]))
            return int(record["token_ns"][-1] - record["scheduled_ns"])

        overlap: list[tuple[int, int]] = []
        alone = spans("a", 1)
        overlap.clear()
        with ThreadPoolExecutor(2) as both:
            together = list(both.map(spans, ("a", "b"), (2, 3)))
        assert max(begin for begin, _ in overlap) < min(end for _, end in overlap)
        assert max(abs(one - alone) for one in together) <= EXACT_NS
