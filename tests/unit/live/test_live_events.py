"""``events.jsonl``: written by a run, read by whoever looks on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from geokv.errors import ConfigError, RunError
from geokv.live import EVENTS, EventLog, Follower, describe_run, is_going_on, read_events
from geokv.live.host import telling
from geokv.live.send import commands_path, make_commands, send
from geokv.paths import CHECKOUT
from geokv.scenario import load_scenario


def silent(_: dict[str, Any]) -> None:
    return None


def test_lines_come_as_they_are_told_and_the_lock_says_that_the_run_goes_on(tmp_path: Path) -> None:
    assert not is_going_on(tmp_path)
    log = EventLog(tmp_path)
    follower = Follower(tmp_path)
    assert follower.new() == []
    log.add({"event": "cell", "label": "50 km — ü"})
    [event] = follower.new()
    assert event["event"] == "cell" and event["label"] == "50 km — ü"
    assert 0 <= event["real_s"] < 5
    assert is_going_on(tmp_path)
    with pytest.raises(FileExistsError):
        EventLog(tmp_path)
    log.close()
    assert not is_going_on(tmp_path)
    assert [one["event"] for one in read_events(tmp_path)] == ["cell"]


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    path = tmp_path / EVENTS
    path.write_bytes(b'{"event":"a"}\n{"ev')
    follower = Follower(tmp_path)
    assert [one["event"] for one in follower.new()] == ["a"]
    offset = follower.offset
    with path.open("ab") as stream:
        stream.write(b'ent":"b"}\n')
    assert [one["event"] for one in follower.new()] == ["b"]
    assert [one["event"] for one in Follower(tmp_path, offset).new()] == ["b"]


def test_what_is_no_event_and_what_is_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=EVENTS):
        read_events(tmp_path)
    (tmp_path / EVENTS).write_text("no JSON\n")
    with pytest.raises(RunError, match="after byte 0"):
        read_events(tmp_path)


@pytest.mark.slow
def test_a_killed_run_is_known_from_a_slow_one(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from geokv.live import EventLog\n"
        "log = EventLog(Path(sys.argv[1])); log.add({'event': 'run'}); print('on', flush=True)\n"
        "time.sleep(60)"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, cwd=CHECKOUT
    )
    assert run.stdout is not None and run.stdout.readline() == b"on\n"
    assert is_going_on(tmp_path)
    run.kill()
    run.wait()
    run.stdout.close()
    assert not is_going_on(tmp_path)
    begun = time.monotonic()
    assert [one["event"] for one in Follower(tmp_path).until(30)] == ["run"]
    assert time.monotonic() - begun < 5


def test_a_run_that_breaks_says_so_last(tmp_path: Path) -> None:
    with pytest.raises(RunError), telling(tmp_path, silent, live=False) as tell:
        tell({"event": "run"})
        raise RunError("the VM ended", "geokv doctor")
    first, last = read_events(tmp_path)
    assert first["event"] == "run"
    assert last == {
        "event": "failed", "real_s": last["real_s"], "message": "the VM ended",
        "hint": "geokv doctor", "exit_code": 4,
    }  # fmt: skip
    assert not commands_path(tmp_path).exists()


def test_ctrl_c_is_told_too(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), telling(tmp_path, silent, live=False):
        raise KeyboardInterrupt
    assert read_events(tmp_path)[-1]["exit_code"] == 130


@pytest.mark.parametrize("breaks", [False, True])
def test_commands_nobody_answered_are_refused_before_the_end(tmp_path: Path, breaks: bool) -> None:
    told: list[str] = []

    def run() -> list[str]:
        with telling(tmp_path, lambda event: told.append(event["event"]), live=True) as tell:
            tell({"event": "run"})
            ids = [send(tmp_path, "stop"), send(tmp_path, "heal", name="x")]
            tell({"event": "command", "id": ids[0], "do": "stop", "phase": "accepted"})
            sent.extend(ids)
            if breaks:
                raise RunError("the VM ended")
            tell({"event": "verdict", "verdict": "pass"})
        return ids

    sent: list[str] = []
    if breaks:
        with pytest.raises(RunError):
            run()
    else:
        run()
    events = read_events(tmp_path)
    answers = [(one["id"], one["phase"]) for one in events if one["event"] == "command"]
    assert answers == [(sent[0], "accepted"), (sent[1], "refused")]
    assert events[-1]["event"] == ("failed" if breaks else "verdict")
    assert told[:2] == ["run", "command"]


def test_commands_are_their_owners_alone_and_only_of_a_run_that_goes_on(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such run folder"):
        send(tmp_path / "nothing", "stop")
    log = EventLog(tmp_path)
    with pytest.raises(ConfigError, match="takes no commands") as refused:
        send(tmp_path, "stop")
    assert "--live" in refused.value.hint
    make_commands(tmp_path)
    path = commands_path(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    name = send(tmp_path, "inject", event={"fault": "link-cut", "link": "a-b"})
    with pytest.raises(ConfigError, match=r"command\.name"):
        send(tmp_path, "heal")
    [line] = path.read_text().splitlines()
    assert json.loads(line)["id"] == name
    log.close()
    with pytest.raises(RunError, match="is over"):
        send(tmp_path, "stop")


def test_the_first_line_describes_the_run() -> None:
    scenario = load_scenario("smoke")
    told = describe_run(scenario, "6.12", 1, None, live=False)
    assert told["event"] == "run" and not told["drill"] and told["arms"] == list(scenario.arms)
    assert told["requests_total"] == 2 * 3 * 2
    assert [one["site"] for one in told["topology"]["sites"]] == ["a", "b"]
    [link] = told["topology"]["links"]
    assert (link["link"], link["a"], link["b"], link["km"]) == ("a-b", "a", "b", 0)
    # Of the deployment, whatever its bytes are divided by.
    assert link["rate_bps"] == 100_000_000_000
    drill = describe_run(load_scenario("link-cut"), "6.12", 1, 2.0, live=True)
    assert drill["drill"] and drill["arms"] == [] and drill["pace"] == 2.0 and drill["live"]
    assert [one["control"] for one in drill["cells"]] == [False, True]
    assert drill["timeline"][0]["fault"] == "link-cut" and "expect" not in drill["timeline"][0]
    assert json.loads(json.dumps(drill)) == drill
