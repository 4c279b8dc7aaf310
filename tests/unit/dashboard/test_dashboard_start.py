"""Starting and ending runs from the page."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from serving import GrowingRun, Served, identity

from geokv.dashboard.children import Children
from geokv.errors import ConfigError

CHILD_S = 60.0


async def test_the_catalogue_has_every_scenario_and_drill(server: Served) -> None:
    server.http.timeout = CHILD_S  # type: ignore[assignment]
    found = {
        one["name"]: one for one in (await server.http.get("/api/scenarios")).json()["scenarios"]
    }
    shipped = Path(__file__).parents[3] / "scenarios"
    names = {path.stem for path in [*shipped.glob("*.yaml"), *shipped.glob("drills/*.yaml")]}
    assert names <= found.keys()
    assert (found["smoke"]["kind"], found["link-cut"]["kind"]) == ("scenario", "drill")
    assert (found["smoke"]["cells"], found["smoke"]["requests"]) == (2, 12)
    assert not any(one["error"] for one in found.values())


async def test_a_wish_is_checked_as_a_run_would(server: Served) -> None:
    good = await server.post(
        "/api/check",
        {"scenario": "smoke", "seed": 7, "pace": "2x", "set": ["workload.requests=1"]},
    )
    assert good.status_code == 200
    assert good.json()["requests"] == 6
    assert good.json()["command"] == (
        "geokv run smoke --set=workload.requests=1 --set=seed=7 --pace=2x"
    )
    for wish, status, said in (
        ({"scenario": "smok"}, 409, "no scenario"),
        ({"scenario": "../smoke"}, 409, "no scenario"),
        ({"scenario": "/etc/passwd"}, 409, "no scenario"),
        ({"scenario": "--help"}, 409, "no scenario"),
        ({"scenario": "smoke", "set": ["links.a-b.km=-3"]}, 409, "must be ≥ 0"),
        ({"scenario": "smoke", "set": ["links.a-b.mk=3"]}, 409, "links.a-b.km"),
        ({"scenario": "smoke", "set": ["--out=/tmp/x"]}, 409, "--out"),
        # What only the rooms below a scenario know: a run would refuse it before it begins.
        ({"scenario": "smoke", "set": ["deployment.model=gpt-9"]}, 409, "deployment.model"),
        ({"scenario": "smoke", "set": ["deployment.dram_bytes=1KiB"]}, 409, "is too small"),
        ({"scenario": "smoke", "seed": -1}, 422, "seed"),
        ({"scenario": "smoke", "pace": "1x; rm"}, 409, "pace"),
        ({"scenario": "smoke", "pace": "0x"}, 409, "pace"),
        ({"scenario": "smoke", "pace": "1x", "clock": "wall"}, 409, "pace"),
        ({"scenario": "smoke", "pace": "1" * 17}, 422, "pace"),
        ({"scenario": "smoke", "out": "/tmp/x"}, 422, "out"),
        ({"scenario": "smoke", "set": ["x=1"] * 51}, 422, "set"),
        ({}, 422, "scenario"),
    ):
        for path in ("/api/check", "/api/start"):
            answer = await server.post(path, wish)
            assert answer.status_code == status, wish
            assert said in answer.json()["error"], answer.json()
    assert await server.ids() == []


async def test_a_run_that_refuses_itself_leaves_no_folder_and_says_why(root: Path) -> None:
    children = Children(most=1)
    run_dir = root / "smoke" / "20260101-000000-0123abcd"
    run_dir.mkdir(parents=True)
    child = await children.start(["smoke", "--set=workload.requests=-1"], run_dir)
    assert child.watch is not None
    async with asyncio.timeout(CHILD_S):
        await child.watch
    assert child.status == 2 and "workload.requests" in child.said
    assert not run_dir.exists()
    assert await children.close() == 0


async def test_no_more_run_than_may_and_all_end_with_the_dashboard(root: Path) -> None:
    children = Children(most=1)
    run_dir = root / "one"
    run_dir.mkdir()
    # Ended while it still imports: whatever stage it is in, it has to go.
    child = await children.start(["smoke"], run_dir)
    with pytest.raises(ConfigError, match="no more may"):
        await children.start(["smoke"], root / "two")
    assert children.of(run_dir) is child and children.of(root / "two") is None
    async with asyncio.timeout(CHILD_S):
        assert await children.close() == 1
    assert child.status not in (None, 0)


async def test_what_runs_ends_where_a_shell_has_ctrl_c_ignored(root: Path) -> None:
    """As it is for all that ``geokv dashboard &`` starts in a script."""
    children = Children(most=1)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = await children.start(["smoke"], root / "one")
    finally:
        signal.signal(signal.SIGINT, before)
    async with asyncio.timeout(CHILD_S):
        assert await children.close() == 1
    # Killed in the end it would have left its VMs to themselves.
    assert child.status in (-signal.SIGTERM, 128 + signal.SIGTERM)


async def test_only_runs_that_were_started_here_are_ended(server: Served, root: Path) -> None:
    run = GrowingRun(root)
    answer = await server.post(f"/api/runs/{identity(root, run.folder)}/end", {})
    assert answer.status_code == 409 and "started here" in answer.json()["error"]
    assert (await server.http.get(f"/api/started/{identity(root, run.folder)}")).status_code == 404
    assert (await server.post("/api/runs/nothing/end", {})).status_code == 404
    run.end()
