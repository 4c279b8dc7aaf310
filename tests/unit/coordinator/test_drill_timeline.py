"""Timelines: when events happen, what they wait for, and what the history says of each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from basic_drill import BASIC

from geokv.clock import now_ns
from geokv.coordinator.drill.log import DrillLog
from geokv.coordinator.drill.moments import Moments
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.drill.timeline import Timeline
from geokv.coordinator.faults import Evidence, Fault, fault_class
from geokv.errors import ConfigError, FaultError
from geokv.scenario import load_scenario
from geokv.scenario.timeline import OurEvent
from geokv.scenario.timeline.event import parse_condition

Make = Callable[..., "Drill"]


class Recorded(Fault[Any]):
    """Does nothing to anything, and can be told to fail."""

    kind = "link-cut"
    deadline_s = 0.2
    broken: str = ""

    async def prepare(self) -> None:
        if self.broken == "unready":
            raise FaultError("it was told not to")
        if self.broken == "never ready":
            await asyncio.Event().wait()

    async def inject(self) -> Evidence:
        if self.broken == "refused":
            raise FaultError("it was told not to")
        if self.broken == "silent":
            await asyncio.Event().wait()
        return Evidence(now_ns(), "seen", {"depth": 1})

    async def heal(self) -> Evidence:
        if self.broken == "stays":
            raise FaultError("it was told not to")
        return Evidence(now_ns(), "gone", {})


class Drill:
    """A timeline over faults that only say what they do."""

    def __init__(self, log: DrillLog, path: Path, events: list[dict[str, Any]]) -> None:
        scenario = load_scenario({**BASIC, "timeline": events})
        self._path = path
        self.moments = Moments()
        stage = Stage(scenario, cast(Any, None), cast(Any, None), log, lambda *_, **__: None)
        self.faults = [Recorded(event, stage) for event in scenario.timeline]
        self.timeline = Timeline(stage, self.moments, self.faults)

    def said(self) -> list[tuple[str, str]]:
        return [(event["name"], event["phase"]) for event in self.events()]

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._path.read_text().splitlines()]


@pytest.fixture
def drill(tmp_path: Path) -> Iterator[Callable[..., Drill]]:
    path = tmp_path / "history-0-coordinator.jsonl"
    log = DrillLog(path)
    yield lambda *events: Drill(log, path, list(events))
    log.close()


def cut(**more: Any) -> dict[str, Any]:
    return {"fault": "link-cut", "link": "a-b", **more}


async def test_an_event_happens_at_its_time_and_is_taken_back_in_time(drill: Make) -> None:
    one = drill(cut(at=0.02, name="one", **{"for": 0.03}))
    start_ns = now_ns()
    await one.timeline.run(start_ns)
    assert one.said() == [
        ("one", "asked"), ("one", "took-effect"), ("one", "heal-asked"), ("one", "healed"),
    ]  # fmt: skip
    asked, took, heal_asked, healed = one.events()
    assert asked["t_ns"] >= start_ns + 20_000_000
    assert heal_asked["t_ns"] >= took["t_ns"] + 30_000_000
    assert healed["evidence"] == {"seen": "gone"}
    assert took["evidence"] == {"seen": "seen", "depth": 1}
    assert took["target"] == "a-b" and took["kind"] == "link-cut"


async def test_events_wait_for_counts_and_for_each_other(drill: Make) -> None:
    one = drill(
        cut(when="requests.done >= 2", name="first", **{"for": 0.01}),
        cut(when="faults.first.healed", after=0.02, name="second", **{"for": 0.01}),
        cut(when="requests.sent >= 1", name="early", **{"for": 0.01}),
    )
    running = asyncio.ensure_future(one.timeline.run(now_ns()))
    one.moments.count_done()
    await asyncio.sleep(0.02)
    assert one.said() == []
    one.moments.count_sent()
    await asyncio.sleep(0.03)
    assert {name for name, _ in one.said()} == {"early"}
    one.moments.count_done()
    await running
    order = [name for name, phase in one.said() if phase == "asked"]
    assert order == ["early", "first", "second"]
    stamps = {(e["name"], e["phase"]): e["t_ns"] for e in one.events()}
    assert stamps["second", "asked"] >= stamps["first", "healed"] + 20_000_000


async def test_the_end_of_the_stream_heals_what_lasts_and_forgets_what_waits(
    drill: Make,
) -> None:
    one = drill(
        cut(at=0, name="open"),
        cut(at=0, name="long", **{"for": 60}),
        cut(at=60, name="late"),
        cut(when="requests.done >= 5", name="never"),
    )
    running = asyncio.ensure_future(one.timeline.run(now_ns()))
    await asyncio.sleep(0.02)
    assert ("open", "heal-asked") not in one.said()
    one.timeline.end()
    async with asyncio.timeout(2):
        await running
    last = dict(one.said())
    assert last == {
        "open": "healed", "long": "healed", "late": "did-not-fire", "never": "did-not-fire",
    }  # fmt: skip
    assert ("late", "asked") not in one.said()


@pytest.mark.parametrize(
    ("broken", "phases", "words"),
    [
        ("refused", ["asked", "did-not-fire", "heal-asked", "healed"], "it was told not to"),
        ("silent", ["asked", "did-not-fire", "heal-asked", "healed"], "nothing was seen within"),
        ("stays", ["asked", "took-effect", "heal-asked", "did-not-heal"], "it was told not to"),
        ("unready", ["did-not-fire"], "it was told not to"),
        ("never ready", ["did-not-fire"], "not ready in 0.2 s"),
    ],
)
async def test_what_was_not_seen_is_said_and_taken_back_all_the_same(
    drill: Make, broken: str, phases: list[str], words: str
) -> None:
    one = drill(cut(at=0, **{"for": 0.01}))
    one.faults[0].broken = broken
    async with asyncio.timeout(2):
        await one.timeline.run(now_ns())
    assert [phase for _, phase in one.said()] == phases
    failed = next(e for e in one.events() if e["phase"].startswith("did-not"))
    # What became of it is the phase; the words are only why.
    assert failed["evidence"]["said"].startswith(words)
    state = "healed" if broken == "stays" else "took_effect"
    assert not one.moments.holds(parse_condition(f"faults.link-cut.{state}"))


async def test_what_would_undo_another_waits_for_no_one_and_says_so(drill: Make) -> None:
    one = drill(
        cut(at=0, name="first", **{"for": 0.05}),
        cut(at=0.02, name="second", **{"for": 0.05}),
        cut(at=0.1, name="third", **{"for": 0.01}),
    )
    for fault in one.faults:
        fault.alone = True  # type: ignore[misc]
    await one.timeline.run(now_ns())
    assert [phase for name, phase in one.said() if name == "second"] == ["asked", "did-not-fire"]
    for name in ("first", "third"):
        assert [phase for who, phase in one.said() if who == name][-1] == "healed"
    refused = next(event for event in one.events() if event["phase"] == "did-not-fire")
    assert "link-cut of a-b is held by first" in refused["evidence"]["said"]


def test_there_is_one_fault_for_every_kind_of_event() -> None:
    for event in get_args(get_args(OurEvent)[0]):
        (kind,) = get_args(event.model_fields["fault"].annotation)
        assert fault_class(kind).kind == kind


def test_a_fault_nobody_can_make_is_refused_by_name() -> None:
    assert fault_class("site-kill").kind == "site-kill"
    with pytest.raises(ConfigError, match="nothing here can make the fault meteor-strike"):
        fault_class("meteor-strike")
