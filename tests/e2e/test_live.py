"""A drill that is watched and told things while it runs, and a pace that changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli import Geokv, Run

from geokv.live import Follower, read_events

BEGIN_S, NEXT_S, END_S = 200.0, 60.0, 200.0
"""Real seconds, on a machine that others use, too."""


class Watched:
    """A running drill, its events, and the command to tell it things."""

    def __init__(self, geokv: Geokv, run_dir: Path, process: Any) -> None:
        self.geokv = geokv
        self.folder = run_dir
        self.process = process
        self.events: list[dict[str, Any]] = []
        self._follower = Follower(run_dir)

    def wait(self, deadline_s: float, **like: Any) -> dict[str, Any]:
        """The next event that has these values; those before it are kept, too."""
        until = time.monotonic() + deadline_s
        while time.monotonic() < until:
            if not self._follower.path.exists():
                assert self.process.poll() is None, self.process.communicate()
                time.sleep(0.1)
                continue
            for event in self._follower.until(until - time.monotonic()):
                self.events.append(event)
                if all(event.get(key) == value for key, value in like.items()):
                    return event
            break
        last = self.events[-1] if self.events else None
        raise AssertionError(f"no event {like} within {deadline_s} s; the last one was {last}")

    def of(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.events if one["event"] == event]


@pytest.fixture
def watched(geokv: Geokv, vm: None, tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    started: list[Watched] = []

    def start(*args: str) -> Watched:
        run_dir = tmp_path / f"live-{len(started)}"
        process = geokv.start("run", *args, "--quiet", "--out", run_dir)
        started.append(Watched(geokv, run_dir, process))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


def test_a_link_is_cut_a_site_killed_and_both_healed_in_a_running_drill(
    watched: Callable[..., Watched],
) -> None:
    run = watched("live", "--pace", "5x", "--set", "workload.prefixes=8")
    geokv, folder = run.geokv, run.folder
    first = run.wait(BEGIN_S, event="run")
    assert first["live"] and first["pace"] == 5.0 and first["drill"]
    assert [link["link"] for link in first["topology"]["links"]] == ["a-b", "b-c", "a-c"]
    request = run.wait(BEGIN_S, event="request")
    assert request["status"] == "ok" and request["ttft_ns"] > 0 and request["site"] in "abc"
    sample = run.wait(NEXT_S, event="sample")
    assert set(sample["sites"]) == {"a", "b", "c"} and sample["links"]["a-b"]["state"] == "ok"
    pool = sample["sites"]["a"]["pools"]["dram"]
    assert pool["free"] + pool["cached"] + pool["pinned"] + pool["reserved"] == pool["total"]
    assert pool["cached"] > 0

    cut = geokv("live", "inject", folder, "link-cut", "a-b", "for", "30min")
    assert cut.returncode == 0, cut.stdout + cut.stderr
    assert "link-cut-1: took-effect neither end of a-b has a carrier" in cut.stdout
    took = run.wait(NEXT_S, event="fault", name="link-cut-1", phase="took-effect")
    assert took["by_hand"] and took["kind"] == "link-cut" and took["target"] == "a-b"
    assert run.wait(NEXT_S, event="sample")["links"]["a-b"]["state"] == "dark"

    killed = geokv("live", "inject", folder, "site-kill b")
    assert killed.returncode == 0 and "site-kill-1: took-effect" in killed.stdout
    run.wait(NEXT_S, event="fault", name="site-kill-1", phase="took-effect")
    assert run.wait(NEXT_S, event="sample")["sites"]["b"] == {"up": False, "answers": False}

    for command, said in (
        (("inject", folder, "link-cut a-z"), "unknown link 'a-z'"),
        (("heal", folder, "link-cut-9"), "what lasts: link-cut-1, site-kill-1"),
        (("inject", folder, "link-cat a-b"), "did you mean link-cut"),
    ):
        refused = geokv("live", *command)
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr

    for name in ("link-cut-1", "site-kill-1"):
        healed = geokv("live", "heal", folder, name)
        assert healed.returncode == 0 and f"{name}: healed" in healed.stdout, healed.stderr
    run.wait(NEXT_S, event="fault", name="site-kill-1", phase="healed")
    sample = run.wait(NEXT_S, event="sample")
    assert sample["links"]["a-b"]["state"] == "ok" and sample["sites"]["b"]["up"]

    assert geokv("live", "stop", folder).returncode == 0
    verdict = run.wait(END_S, event="verdict")
    assert verdict["verdict"] == "pass", verdict
    assert run.process.wait(NEXT_S) == 0
    summary = Run(cut, folder).summary
    assert summary["by_hand"]["stopped"] and len(summary["by_hand"]["commands"]) == 5
    faults = {fault["name"]: fault for fault in summary["cells"][0]["faults"]}
    assert faults["link-cut-1"]["by_hand"]["for"] == 1800
    assert faults["link-cut-1"]["healed_ms"] and faults["site-kill-1"]["healed_ms"]
    assert "by hand, while it ran" in (folder / "sheet.en.md").read_text()
    over = geokv("live", "stop", folder)
    assert over.returncode == 4 and "this run is over" in over.stderr


def test_a_pace_and_being_watched_change_what_they_may_and_nothing_else(
    geokv: Geokv, vm: None, smoke: Run
) -> None:
    paced = geokv.run_scenario("smoke", "--pace", "4x", "--no-live", "--set", "vm.jobs=1")
    plain = geokv.run_scenario("smoke", "--set", "vm.jobs=1")
    assert (paced.folder / "table.csv").read_bytes() == (plain.folder / "table.csv").read_bytes()
    events = read_events(paced.folder)
    assert events[0]["pace"] == 4.0 and not events[0]["live"]
    assert not any(event["event"] == "sample" for event in events)
    first, last = (
        next(event for event in order if "t_ns" in event) for order in (events, events[::-1])
    )
    real_s = last["real_s"] - first["real_s"]
    assert real_s >= (last["t_ns"] - first["t_ns"]) / 1e9 / 4 - 0.2


def test_a_measurement_run_is_watched_and_refuses_commands(
    watched: Callable[..., Watched],
) -> None:
    run = watched("smoke", "--live", "--pace", "1x", "--set", "workload.requests=6")
    sample = run.wait(BEGIN_S, event="sample")
    assert set(sample["sites"]) == {"a", "b"} and set(sample["links"]) == {"a-b"}
    refused = run.geokv("live", "inject", run.folder, "link-cut a-b")
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "this is a measurement run" in refused.stderr
    assert run.wait(END_S, event="verdict")["verdict"] == "pass"
    assert [one["phase"] for one in run.of("command")] == ["refused"]
