"""A drill that is told things while it runs: faults, their healing, its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from basic_drill import BASIC

from geokv.clock import now_ns
from geokv.coordinator.drill.log import DrillLog
from geokv.coordinator.drill.moments import Moments
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.drill.stream import StreamRunner
from geokv.coordinator.drill.timeline import Timeline
from geokv.coordinator.faults import Evidence, Fault
from geokv.coordinator.fleet import Fleet
from geokv.coordinator.live.desk import Desk, in_drill, refuse
from geokv.coordinator.live.inbox import Inbox
from geokv.errors import ConfigError
from geokv.live.command import event_by_hand
from geokv.live.send import commands_path, make_commands
from geokv.scenario import load_scenario

SCENARIO: dict[str, Any] = {
    **BASIC,
    "workload": {**BASIC["workload"], "deadline": "50ms"},
    "timeline": [{"fault": "link-cut", "link": "a-b", "at": 0, "name": "planned", "for": "1min"}],
}


class Said(Fault[Any]):
    """Does nothing to anything; the real ones have tests in the VM."""

    kind = "said"
    deadline_s = 0.2

    async def inject(self) -> Evidence:
        return Evidence(now_ns(), "seen", {})

    async def heal(self) -> Evidence:
        return Evidence(now_ns(), "gone", {})


class Kept(Said):
    """Nothing takes this back."""

    heal = Fault.heal


class Lab:
    """A drill's timeline and stream, with its history in a file and its answers in a list."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "history-0-coordinator.jsonl"
        self.log = DrillLog(self.path)
        self.scenario = load_scenario(SCENARIO)
        self.steps: list[tuple[str, dict[str, Any]]] = []
        self.stage = Stage(self.scenario, cast(Any, None), Fleet(), self.log, self._step)
        planned = [Said(event, self.stage) for event in self.scenario.timeline]
        self.timeline = Timeline(self.stage, Moments(), planned)
        self.stream = StreamRunner(self.stage, [], {}, Moments())
        self.start_ns = now_ns()
        make_commands(folder)
        self._file = commands_path(folder)
        self.desk = Desk(Inbox(self._file), self._step)
        self.do = in_drill(self.stage, self.timeline, self.stream, self.start_ns)

    def _step(self, event: str, **said: Any) -> None:
        self.steps.append((event, said))

    def tell(self, *lines: Any) -> None:
        with self._file.open("a") as stream:
            for line in lines:
                stream.write((line if isinstance(line, str) else json.dumps(line)) + "\n")

    def answers(self) -> list[dict[str, Any]]:
        return [said for event, said in self.steps if event == "command"]

    def phases(self, name: str) -> list[str]:
        return [e["phase"] for e in self.events("fault") if e["name"] == name]

    def is_there(self, name: str) -> bool:
        return self.phases(name) == ["asked", "took-effect"]

    def events(self, op: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [event for event in found if event["op"] == op]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    def kinds(kind: str) -> type[Fault[Any]]:
        return Kept if kind == "bit-rot" else Said

    monkeypatch.setattr("geokv.coordinator.drill.timeline.fault_class", kinds)
    one = Lab(tmp_path)
    yield one
    one.log.close()


async def until(holds: Callable[[], bool]) -> None:
    """Return once it holds; a machine that others use takes its time."""
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.002)


def inject(name: str, /, **event: Any) -> dict[str, Any]:
    return {"id": name, "do": "inject", "event": event}


async def test_a_fault_by_hand_lasts_heals_and_is_in_the_history_as_such(lab: Lab) -> None:
    running = asyncio.ensure_future(lab.timeline.run(lab.start_ns))
    await until(lambda: lab.phases("planned") == ["asked", "took-effect"])
    lab.tell(
        inject("x1", fault="slow-gpu", site="b", factor=2, **{"for": "20ms"}),
        inject("x2", fault="slow-gpu", site="a", factor=2),
    )
    lab.desk.look(lab.do)
    await until(lambda: lab.phases("slow-gpu-1")[-1:] == ["healed"])
    assert lab.phases("slow-gpu-1") == ["asked", "took-effect", "heal-asked", "healed"]
    assert lab.phases("slow-gpu-2") == ["asked", "took-effect"]
    asked = next(e for e in lab.events("fault") if e["name"] == "slow-gpu-1")
    assert asked["by_hand"]["for"] == 0.02 and asked["by_hand"]["factor"] == 2
    assert asked["site"] == "b" and asked["kind"] == "slow-gpu"
    assert all("by_hand" not in e for e in lab.events("fault") if e["name"] == "planned")
    lab.tell({"id": "x3", "do": "heal", "name": "slow-gpu-2"})
    lab.desk.look(lab.do)
    await until(lambda: lab.phases("slow-gpu-2")[-1] == "healed")
    assert lab.answers() == [
        {"id": "x1", "do": "inject", "phase": "accepted", "name": "slow-gpu-1"},
        {"id": "x2", "do": "inject", "phase": "accepted", "name": "slow-gpu-2"},
        {"id": "x3", "do": "heal", "phase": "accepted", "name": "slow-gpu-2"},
    ]
    assert [(e["do"], e["id"]) for e in lab.events("command")] == [
        ("inject", "x1"), ("inject", "x2"), ("heal", "x3"),
    ]  # fmt: skip
    told = [said for event, said in lab.steps if event == "fault"]
    assert {said["name"]: said["by_hand"] for said in told} == {
        "planned": False, "slow-gpu-1": True, "slow-gpu-2": True,
    }  # fmt: skip
    lab.timeline.end()
    await running
    await lab.timeline.settled()


async def test_a_planned_fault_can_be_healed_before_its_time_and_no_other_is(lab: Lab) -> None:
    running = asyncio.ensure_future(lab.timeline.run(lab.start_ns))
    lab.tell(inject("y", fault="site-freeze", site="b"))
    lab.desk.look(lab.do)
    for name in ("planned", "site-freeze-1"):
        await until(partial(lab.is_there, name))
    lab.timeline.heal("planned")
    async with asyncio.timeout(10):
        await running
    assert lab.phases("planned")[-1] == "healed"
    assert lab.phases("site-freeze-1") == ["asked", "took-effect"]
    lab.timeline.end()
    await lab.timeline.settled()
    assert lab.phases("site-freeze-1")[-1] == "healed"


async def test_what_would_stay_can_be_taken_back_by_hand_but_is_not_by_the_end(lab: Lab) -> None:
    for site in ("a", "b"):
        lab.tell(inject(site, fault="site-kill", site=site))
    lab.tell(inject("rot", fault="bit-rot", site="a"))
    lab.desk.look(lab.do)
    for name in ("site-kill-1", "site-kill-2", "bit-rot-1"):
        await until(partial(lab.is_there, name))
    lab.timeline.heal("site-kill-1")
    with pytest.raises(ConfigError, match="bit-rot-1 does not last"):
        lab.timeline.heal("bit-rot-1")
    await until(lambda: lab.phases("site-kill-1")[-1] == "healed")
    lab.timeline.end()
    async with asyncio.timeout(10):
        await lab.timeline.settled()
    assert lab.phases("site-kill-1") == ["asked", "took-effect", "heal-asked", "healed"]
    assert lab.phases("site-kill-2") == ["asked", "took-effect"]
    assert lab.phases("bit-rot-1") == ["asked", "took-effect"]


async def test_bad_commands_are_refused_with_the_reason_and_cost_nothing(lab: Lab) -> None:
    lab.tell(
        "{half a line", "[1]", '"text"', "",
        {"id": "p", "do": "inject", "event": {"fault": "link-cut", "link": "a-z"}},
        {"id": "q", "do": "heal", "name": "nobody"},
        inject("r", fault="slow-gpu", site="b", factor=2, name="planned"),
        inject("s", fault="slow-gpu", site="b", factor=2),
    )  # fmt: skip
    lab.desk.look(lab.do)
    lab.desk.look(lab.do)
    said = [(one["id"], one["phase"], one.get("reason", "")) for one in lab.answers()]
    assert [(name, phase) for name, phase, _ in said] == [
        (None, "refused"), (None, "refused"), (None, "refused"),
        ("p", "refused"), ("q", "refused"), ("r", "refused"), ("s", "accepted"),
    ]  # fmt: skip
    reasons = [reason for *_, reason in said]
    assert reasons[3].startswith("event.link: unknown link 'a-z'")
    assert reasons[4] == "fault nobody is unknown; what lasts: none"
    assert "planned is the name of another fault" in reasons[5]
    await until(lambda: lab.phases("slow-gpu-1") == ["asked", "took-effect"])
    lab.timeline.end()
    await lab.timeline.settled()
    assert lab.phases("slow-gpu-1")[-1] == "healed"
    with pytest.raises(ConfigError, match="is over"):
        lab.timeline.add(
            event_by_hand(lab.scenario, {"fault": "link-cut", "link": "a-b"}, []), lab.start_ns
        )


def test_half_a_line_is_not_taken_before_it_is_whole(lab: Lab) -> None:
    whole = json.dumps({"id": "z", "do": "stop"})
    with lab._file.open("a") as stream:
        stream.write(whole[:9])
        stream.flush()
        lab.desk.look(lab.do)
        assert lab.answers() == []
        stream.write(whole[9:] + "\n")
    lab.desk.look(lab.do)
    assert [one["phase"] for one in lab.answers()] == ["accepted"]


def test_where_nothing_is_done_everything_is_refused(lab: Lab) -> None:
    lab.tell({"id": "z", "do": "stop"}, inject("i", fault="link-cut", link="a-b"))
    lab.desk.look(refuse("this is a measurement run"))
    assert [one["reason"] for one in lab.answers()] == ["this is a measurement run"] * 2


async def test_stop_sends_nothing_more(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Due:
        def __init__(self, number: int) -> None:
            self.number, self.due_ns = number, number * 10_000_000

    async def one(due: Any) -> None:
        asked.append(due.number)
        if due.number == 2:
            lab.tell({"id": "s", "do": "stop"})
            lab.desk.look(lab.do)

    monkeypatch.setattr(lab.stream, "_one", one)
    sent = await lab.stream.run(now_ns(), cast(Any, [Due(number) for number in range(50)]))
    assert asked == [0, 1, 2] and sent == 3
