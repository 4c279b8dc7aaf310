"""Taking part from Python in a run that goes on: the example of docs/live.md, and its ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from geokv import ConfigError, FaultError, RunEnded, RunError, Scenario, load_run, run, start
from geokv.live import is_going_on, read_events
from geokv.paths import CHECKOUT

PAGE = CHECKOUT / "docs" / "live.md"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SMALL = Scenario("live").with_({"workload.prefixes": 4, "workload.requests": 3000})
"""Ten minutes and more of its clock: none of these tests waits for its end."""
LEAVES = """
import sys
from geokv import Scenario, start

running = start(Scenario("live"), "run", live=True)
for event in running.follow(within_s=200):
    if event["event"] == "sites":
        print("goes on", running.is_going_on)
        sys.exit(0)
"""


def script(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text)
    return subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
    )


@pytest.mark.timeout(600)
def test_the_example_of_the_documentation(tmp_path: Path, vm: None) -> None:
    (example,) = PYTHON.findall(PAGE.read_text(encoding="utf-8"))
    done = script(example, tmp_path)
    assert done.returncode == 0, done.stderr
    verdict, sources = done.stdout.splitlines()
    assert verdict == "pass []"
    (folder,) = (tmp_path / "results").glob("live/*")
    events = read_events(folder)
    assert events[0]["live"] and events[0]["pace"] == 5.0
    assert sources == str([one["source"] for one in events if one["event"] == "request"])
    faults = {one["name"]: one for one in load_run(folder).summary["cells"][0]["faults"]}
    assert set(faults) == {"link-cut-1", "site-kill-1"}
    assert all(one["by_hand"] and one["healed_ms"] for one in faults.values())
    assert done.stderr == ""


@pytest.mark.timeout(400)
def test_a_run_is_told_things_looked_at_and_ended(tmp_path: Path, vm: None) -> None:
    with start(SMALL, tmp_path / "run", live=True, pace=5) as running:
        assert running.folder == tmp_path / "run" and running.is_going_on
        name = running.inject("link-cut a-b for 30min name=dig")
        assert name == "dig"
        page = running._repr_html_()
        assert "dig took effect" in page and "goes on" in page and SMALL.title in page
        assert repr(running) == f"<Running live: goes on, {running.folder}>"
        with pytest.raises(ConfigError, match="no fault is called 'link-cat'"):
            running.inject("link-cat a-b")
        with pytest.raises(ConfigError, match="unknown link 'a-z'"):
            running.inject({"fault": "link-cut", "link": "a-z"})
        with pytest.raises(ConfigError, match="what lasts: dig"):
            running.heal("ditch")
        # A link has one fault at a time.
        with pytest.raises(FaultError, match="did not fire: link a-b has no light to lose"):
            running.inject("link-cut a-b")
        running.heal("dig")
        with pytest.raises(RunError, match=r"still goes on after 0\.01 s"):
            running.wait(within_s=0.01)
        began = time.monotonic()
        running.end()
        assert time.monotonic() - began < 10
    assert not running.is_going_on and not is_going_on(running.folder)
    with pytest.raises(RunEnded, match="ended before it was over"):
        running.wait()
    with pytest.raises(RunError, match="this run is over"):
        running.stop()
    last = running.events()[-1]
    assert (last["event"], last["exit_code"]) == ("failed", 130)
    assert repr(running) == f"<Running live: ended, {running.folder}>"


@pytest.mark.timeout(400)
def test_a_measurement_run_in_the_background_takes_no_commands(tmp_path: Path, vm: None) -> None:
    few = Scenario("smoke").with_({"workload.requests": 1, "workload.prefix_tokens": 512})
    few = few.with_({"links.a-b.km": 50, "vm.jobs": 1})
    steps: list[str] = []
    told = start(few, tmp_path / "told", live=True, progress=lambda one: steps.append(one["event"]))
    with told:
        with pytest.raises(ConfigError, match="this is a measurement run"):
            told.inject("link-cut a-b")
        result = told.wait(within_s=200)
        assert told._repr_html_() == result._repr_html_()
    assert result.folder == told.folder
    assert steps.count("request") == sum(one["event"] == "request" for one in told.events())
    # The same with run, of which nobody asked for samples: no live, and no place for commands.
    alone = run(few, tmp_path / "alone", pace="50x", live=False, progress=False)
    first = read_events(alone.folder)[0]
    assert (first["pace"], first["live"]) == (50.0, False)
    assert not (alone.folder / "live").exists()
    paced = run(few, tmp_path / "paced", pace=50, progress=False)
    assert read_events(paced.folder)[0]["live"]
    assert any(one["event"] == "sample" for one in read_events(paced.folder))


@pytest.mark.timeout(400)
def test_a_program_that_ends_leaves_no_run_behind(tmp_path: Path, vm: None) -> None:
    done = script(LEAVES, tmp_path)
    assert (done.returncode, done.stdout) == (0, "goes on True\n"), done.stderr
    assert done.stderr == ""
    assert not is_going_on(tmp_path / "run")
    assert read_events(tmp_path / "run")[-1]["exit_code"] == 130
