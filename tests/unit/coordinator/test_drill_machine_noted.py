"""What a drill in real time notes of the machine, of real sites and real timers."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest
from basic_drill import BASIC
from site_processes import SiteRoom, prompt

from geokv.coordinator.drill import quiesce
from geokv.coordinator.drill.log import DrillLog
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.fleet import Fleet, SiteHandle
from geokv.coordinator.timers import late_timers
from geokv.measure.checker import History
from geokv.measure.drill.machine import kept_up
from geokv.scenario import load_scenario


async def test_timers_and_outlasted_charges_of_all_that_run(
    own_room: SiteRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three sites one is stopped, and one is gone."""
    monkeypatch.setattr(quiesce, "_LOOK_DEADLINE_S", 0.3)
    sites = {name: own_room.start(own_room.settings(name)) for name in ("a", "b", "c")}
    assert (await sites["a"].ask("asked", prompt(100))).error is None
    fleet = Fleet()
    for name, site in sites.items():
        fleet.sites[name] = SiteHandle(site.settings, site.process)
    log = DrillLog(tmp_path / "history.jsonl")
    stage = Stage(load_scenario(BASIC), cast(Any, None), fleet, log, lambda *said, **more: None)
    os.kill(stage.pid("b"), signal.SIGSTOP)
    try:
        sites["c"].kill()
        sites["c"].process.join(5)
        with late_timers("wall") as timers:
            assert timers is not None
            timers.since()
            await quiesce.note_machine(stage, timers)
    finally:
        os.kill(stage.pid("b"), signal.SIGCONT)
        await stage.aclose()
        log.close()
    lines = (tmp_path / "history.jsonl").read_text(encoding="utf-8")
    (event,) = [json.loads(line) for line in lines.splitlines()]
    assert (event["op"], event["site"], event["compute"]) == ("machine", "", "charged")
    assert event["late_ns"] == {"a": sites["a"].get("/stats")["late_ns"], "b": None}
    found = kept_up(History([event], 0)).timers
    # The site that does not answer took 300 ms to wait for.
    assert found is not None and found.timers >= 25
