"""What the page tells a running lab: into the file where the lab looks, and only there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from serving import GrowingRun, Served, identity

from geokv.dashboard.orders import Order, send_order
from geokv.dashboard.reading import Folder
from geokv.errors import RunError
from geokv.live.send import commands_path, make_commands


@pytest.fixture
def run(root: Path) -> GrowingRun:
    made = GrowingRun(root, live=True)
    made.add("run", live=True)
    make_commands(made.folder)
    return made


async def order(server: Served, root: Path, run: GrowingRun, body: Any) -> tuple[int, Any]:
    answer = await server.post(f"/api/runs/{identity(root, run.folder)}/command", body)
    return answer.status_code, answer.json()


def written(run: GrowingRun) -> list[dict[str, Any]]:
    return [json.loads(line) for line in commands_path(run.folder).read_text().splitlines()]


async def test_orders_are_written_as_the_lab_reads_them(
    server: Served, root: Path, run: GrowingRun
) -> None:
    cut = {"fault": "link-cut", "link": "a-b", "for": "5s"}
    ids = []
    for body in (
        {"do": "inject", "event": cut},
        {"do": "inject", "line": "link-cut a-b for 5s"},
        {"do": "heal", "name": "link-cut-1"},
        {"do": "stop"},
    ):
        status, said = await order(server, root, run, body)
        assert status == 200, said
        ids.append(said["id"])
    assert len(set(ids)) == 4
    assert written(run) == [
        {"id": ids[0], "do": "inject", "event": cut},
        {"id": ids[1], "do": "inject", "event": cut},
        {"id": ids[2], "do": "heal", "name": "link-cut-1"},
        {"id": ids[3], "do": "stop"},
    ]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"do": "inject"}, 422, "event or a line"),
        ({"do": "inject", "event": {}, "line": "x"}, 422, "event or a line"),
        ({"do": "stop", "name": "cut"}, 422, "heal has a name"),
        ({"do": "heal"}, 422, "heal has a name"),
        ({"do": "heal", "name": "No Name"}, 409, "command.name"),
        ({"do": "inject", "line": "link-cud a-b"}, 409, "no fault is called"),
        ({"do": "inject", "line": "link-cut a-b sideways"}, 409, "cannot make sense"),
        ({"do": "halt"}, 422, "do"),
        ({"do": "stop", "more": 1}, 422, "more"),
    ],
)
async def test_what_makes_no_sense_is_not_written(
    server: Served, root: Path, run: GrowingRun, body: Any, status: int, said: str
) -> None:
    got, answer = await order(server, root, run, body)
    assert got == status
    assert said in answer["error"], answer
    assert written(run) == []


async def test_a_run_that_is_over_or_not_live_takes_none(
    server: Served, root: Path, run: GrowingRun
) -> None:
    deaf = GrowingRun(root, "by_hand/20260301-000000-0123abcd")
    deaf.add("run")
    status, said = await order(server, root, deaf, {"do": "stop"})
    assert status == 409 and "takes no commands" in said["error"]
    run.end()
    status, said = await order(server, root, run, {"do": "stop"})
    assert status == 409 and "over" in said["error"]
    assert written(run) == []


@pytest.mark.parametrize("what", ["file", "folder"])
async def test_a_link_in_place_of_the_file_is_not_written_to(
    server: Served, root: Path, run: GrowingRun, what: str
) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "commands.jsonl").write_text("")
    path = commands_path(run.folder)
    path.unlink()
    if what == "file":
        path.symlink_to(outside / "commands.jsonl")
    else:
        path.parent.rmdir()
        path.parent.symlink_to(outside)
    status, _ = await order(server, root, run, {"do": "stop"})
    assert status == 409
    assert (outside / "commands.jsonl").read_text() == ""


@pytest.mark.parametrize("swapped", ["run", "parent"])
async def test_no_order_goes_through_a_folder_that_became_a_link(
    server: Served, root: Path, run: GrowingRun, swapped: str
) -> None:
    name = identity(root, run.folder)
    assert (await server.http.get(f"/api/runs/{name}")).status_code == 200
    listed = run.folder if swapped == "run" else run.folder.parent
    listed.rename(root.parent / "elsewhere")
    listed.symlink_to(root.parent / "elsewhere")
    with pytest.raises(RunError, match="takes no commands"):
        send_order(Folder(root, tuple(name.split("~"))), Order(do="stop"))
    answer = await server.post(f"/api/runs/{name}/command", {"do": "stop"})
    assert answer.status_code in (404, 409)
    assert written(run) == []
