"""Telling a run something, and what is heard of it; the other end is played by the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from geokv.errors import ConfigError, RunError
from geokv.live.host import Tell, telling
from geokv.live.send import read_sent
from geokv.live.tell import tell

Answer = Callable[[dict[str, Any], Tell], None]
CUT = {"fault": "link-cut", "link": "a-b"}


class Coordinator:
    """Holds a run's events open, and answers each command once."""

    def __init__(self, folder: Path, answer: Answer) -> None:
        self._folder, self._answer = folder, answer
        self._end = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._go)
        self._thread.start()
        assert self._ready.wait(5)

    def _go(self) -> None:
        with telling(self._folder, lambda event: None, live=True) as say:
            say({"event": "run"})
            self._ready.set()
            answered = 0
            while not self._end.is_set():
                for command in read_sent(self._folder)[answered:]:
                    answered += 1
                    self._answer(command, say)
                time.sleep(0.01)

    def end(self) -> None:
        self._end.set()
        self._thread.join(5)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[Answer], Path]]:
    made: list[Coordinator] = []

    def begin(answer: Answer) -> Path:
        made.append(Coordinator(tmp_path, answer))
        return tmp_path

    yield begin
    for one in made:
        one.end()


def fault(name: str, phase: str, **more: Any) -> dict[str, Any]:
    return {"event": "fault", "name": name, "phase": phase, "seen": "", "said": "", **more}


def accept(command: dict[str, Any], say: Tell, name: str = "") -> None:
    named = {"id": command["id"], "do": command["do"]}
    say({"event": "command", **named, "phase": "accepted", "reason": "", "name": name})


def test_a_fault_is_heard_of_until_it_took_effect(run: Callable[[Answer], Path]) -> None:
    def answer(command: dict[str, Any], say: Tell) -> None:
        accept(command, say, "cut")
        say(fault("another", "took-effect"))
        say(fault("cut", "asked"))
        say(fault("cut", "took-effect", seen="dark"))
        say(fault("cut", "healed"))

    heard = list(tell(run(answer), 5, "inject", event=CUT))
    assert [one["phase"] for one in heard] == ["accepted", "asked", "took-effect"]
    assert heard[-1]["seen"] == "dark"


def test_what_did_not_fire_is_the_last_that_is_heard(run: Callable[[Answer], Path]) -> None:
    def answer(command: dict[str, Any], say: Tell) -> None:
        accept(command, say, "cut")
        say(fault("cut", "did-not-fire", said="no such carrier"))

    heard = list(tell(run(answer), 5, "inject", event=CUT))
    assert [one["phase"] for one in heard] == ["accepted", "did-not-fire"]


def test_an_answer_is_enough_for_a_stop(run: Callable[[Answer], Path]) -> None:
    folder = run(accept)
    assert [one["do"] for one in tell(folder, 5, "stop")] == ["stop"]
    # What was said before is not taken for an answer to this.
    assert [one["do"] for one in tell(folder, 5, "stop")] == ["stop"]
    ids = [one["id"] for one in read_sent(folder)]
    assert len(set(ids)) == 2


def test_a_refusal_is_raised_with_its_reason(run: Callable[[Answer], Path]) -> None:
    def refuse(command: dict[str, Any], say: Tell) -> None:
        named = {"id": command["id"], "do": command["do"]}
        say({"event": "command", **named, "phase": "refused", "reason": "not in this weather"})

    with pytest.raises(ConfigError, match="not in this weather"):
        list(tell(run(refuse), 5, "heal", name="cut"))


def test_silence_ends_by_its_deadline(run: Callable[[Answer], Path]) -> None:
    folder = run(lambda command, say: None)
    began = time.monotonic()
    with pytest.raises(RunError, match=r"nothing more was heard of it within 0\.3 s"):
        list(tell(folder, 0.3, "stop"))
    assert time.monotonic() - began < 3


def test_a_run_that_is_over_is_told_nothing(run: Callable[[Answer], Path], tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, accept)
    coordinator.end()
    with pytest.raises(RunError, match="this run is over"):
        list(tell(tmp_path, 5, "stop"))
