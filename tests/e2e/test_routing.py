"""Requests that a door sends on are served over the links, and every checker still holds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from geokv import Run, Scenario, run


@pytest.mark.timeout(300)
def test_a_door_sends_requests_on(tmp_path: Path, vm: None) -> None:
    scenario = (
        Scenario("link-cut")
        .with_(name="routed", timeline=[], control=None)
        .with_({"expect.drill": {"answered": 1.0}, "workload.requests": 24, "vm.jobs": 1})
        .with_({"workload.cold": "keep"})
        .sweep("routing.policy", ["asker", "round-robin"])
    )
    steps: list[str] = []
    found, beats = asyncio.run(_beside(scenario, tmp_path / "run", steps))
    assert beats > 10
    assert steps.count("cell") == 2
    assert steps.count("request") == 48
    assert found.verdict == "pass", found.reasons
    asked = found.requests
    served = asked.groupby(["cell", "site"]).size().unstack(fill_value=0)
    assert served.loc[0].to_dict() == {"a": 0, "b": 24}
    assert served.loc[1].to_dict() == {"a": 12, "b": 12}
    # Site a has the prefixes, so what goes there needs no fetch, but a round trip of 0.5 ms.
    routed = asked.query("cell == 1")
    away = routed[routed["site"] == "a"]
    assert set(away["fate"]) == {"local"}
    here = routed.query("site == 'b' and fate == 'local'")
    assert 500_000 <= away["ttft_ns"].min() - here["ttft_ns"].min() <= 1_000_000
    assert set(routed["door"]) == {"b"}


async def _beside(scenario: Scenario, out: Path, steps: list[str]) -> tuple[Run, int]:
    """Run it as a notebook does, whose event loop goes on meanwhile."""
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.2)
            beats += 1

    beating = asyncio.ensure_future(beat())
    try:
        found = await asyncio.to_thread(
            run, scenario, out, progress=lambda step: steps.append(step["event"])
        )
    finally:
        beating.cancel()
    return found, beats
