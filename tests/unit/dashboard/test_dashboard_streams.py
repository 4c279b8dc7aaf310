"""Server-sent events: what comes, in which order, and how a reader goes on after a pause."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from serving import WAIT_S, GrowingRun, Served, finished_run, identity, served

from geokv.dashboard import sse, streams, tail
from geokv.dashboard.reading import Folder
from geokv.dashboard.tail import Place, parse_place, read_steps


def numbers(steps: list[dict[str, Any]]) -> list[str]:
    return [step["request_id"] for step in steps]


def path_of(root: Path, run: GrowingRun) -> str:
    return f"/api/runs/{identity(root, run.folder)}/stream"


async def test_steps_come_as_the_run_writes_them_until_its_verdict(
    server: Served, root: Path
) -> None:
    run = GrowingRun(root)
    run.requests(0, 3)
    async with server.stream(path_of(root, run)) as events:
        assert (await events.next("run"))["state"] == "running"
        assert numbers(await events.steps(3)) == ["r0", "r1", "r2"]
        run.requests(3, 2)
        assert numbers(await events.steps(2)) == ["r3", "r4"]
        run.raw('{"event": "request", "request_id": "r5"')
        await asyncio.sleep(2 * sse.LOOK_EVERY_S)
        run.raw("}\n")
        assert numbers(await events.steps(1)) == ["r5"]
        run.requests(6, 1)
        run.end("fail")
        rest = await events.rest()
    kinds = [kind for kind, _ in rest]
    assert kinds.count("steps") == 1 and kinds[-1] == "end"
    assert rest[-1][1] == {"state": "finished"}
    told = next(data for kind, data in rest if kind == "run")
    assert (told["state"], told["verdict"]) == ("finished", "fail")


async def test_a_reader_goes_on_where_it_was(server: Served, root: Path) -> None:
    run = GrowingRun(root)
    run.requests(0, 5)
    async with server.stream(path_of(root, run)) as events:
        await events.steps(5)
        last = events.last
    run.requests(5, 5)
    assert last is not None
    async with server.stream(path_of(root, run), last) as events:
        assert numbers(await events.steps(5)) == [f"r{n}" for n in range(5, 10)]
        run.end()
        rest = await events.rest()
    assert "restart" not in [kind for kind, _ in rest]
    async with server.stream(path_of(root, run), events.last) as events:
        assert [kind for kind, _ in await events.rest()] == ["run", "end"]
    # A page that had closed its stream says so in the address; a browser's header is newer.
    path = f"{path_of(root, run)}?last={last}"
    async with server.stream(path) as events:
        assert numbers(await events.steps(5)) == [f"r{n}" for n in range(5, 10)]
        newest = events.last
    async with server.stream(path, newest) as events:
        assert [kind for kind, _ in await events.rest()] == ["run", "end"]


@pytest.mark.parametrize("last", ["events.jsonl:x", "/etc/passwd:0", "events.jsonl:-1", "7", ":"])
async def test_a_place_that_is_none_begins_anew(server: Served, root: Path, last: str) -> None:
    run = GrowingRun(root)
    run.requests(0, 2)
    run.end()
    assert parse_place(last) is None
    async with server.stream(path_of(root, run), last) as events:
        rest = await events.rest()
    assert [kind for kind, _ in rest] == ["run", "restart", "steps", "end"]
    assert numbers(rest[2][1]) == ["r0", "r1"]


async def test_a_file_that_begins_anew_is_read_anew(server: Served, root: Path) -> None:
    run = GrowingRun(root)
    run.requests(0, 50)
    async with server.stream(path_of(root, run)) as events:
        await events.steps(50)
        run.stream.seek(0)
        run.stream.truncate()
        run.requests(100, 1)
        await events.next("restart")
        assert numbers(await events.steps(1)) == ["r100"]
    run.end()


async def test_lines_that_are_no_steps_are_left_out(server: Served, root: Path) -> None:
    run = GrowingRun(root)
    for text in (
        "\n",
        "not json\n",
        "[1]\n",
        '{"no": "event"}\n',
        '{"event": 3}\n',
        '{"event": "request", "request_id": "nan", "ttft_ms": NaN}\n',
        "\xff\n",
        "x" * (3 * tail.BATCH_BYTES) + "\n",
    ):
        run.raw(text)
    run.requests(1, 1)
    run.end()
    async with server.stream(path_of(root, run)) as events:
        rest = await events.rest()
    assert [numbers(data) for kind, data in rest if kind == "steps"] == [["r1"]]


async def test_a_log_of_before_there_were_events_has_the_same_steps(
    server: Served, root: Path
) -> None:
    run = GrowingRun(root)
    (run.folder / "log.txt").write_text(
        '[1] {"event": "request", "request_id": "r0"}\n[0] ! Killed\nrubbish\n'
    )
    run.end()
    (run.folder / "events.jsonl").unlink()
    async with server.stream(path_of(root, run)) as events:
        rest = await events.rest()
    assert [data for kind, data in rest if kind == "steps"] == [
        [{"part": 1, "event": "request", "request_id": "r0"}]
    ]


async def test_a_long_run_comes_in_pieces_that_have_a_limit(server: Served, root: Path) -> None:
    run = GrowingRun(root)
    run.requests(0, 20_000)
    size = (run.folder / "events.jsonl").stat().st_size
    run.end()
    async with server.stream(path_of(root, run)) as events:
        rest = await events.rest()
    pieces = [numbers(data) for kind, data in rest if kind == "steps"]
    assert [one for piece in pieces for one in piece] == [f"r{n}" for n in range(20_000)]
    assert len(pieces) > size // tail.BATCH_BYTES > 3


async def test_a_reader_that_takes_nothing_costs_no_memory(
    server: Served, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read for it beyond what its connection takes."""
    run = GrowingRun(root)
    run.raw("".join(f'{{"event":"x","pad":"{"y" * 1000}","n":{n}}}\n' for n in range(40_000)))
    reached = 0

    def watched(folder: Folder, place: Place) -> Any:
        nonlocal reached
        reached = max(reached, place.offset)
        return read_steps(folder, place)

    monkeypatch.setattr(streams, "read_steps", watched)
    # What fits the buffers of both sockets is all that may be taken.
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    head = f"GET {path_of(root, run)} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(WAIT_S):
        while not reached:
            await asyncio.sleep(0.05)
    await asyncio.sleep(1.5)
    assert reached < 0.5 * (run.folder / "events.jsonl").stat().st_size
    assert server.dashboard.streams.open == 1
    writer.transport.abort()
    async with asyncio.timeout(WAIT_S):
        while server.dashboard.streams.open:
            await asyncio.sleep(0.05)


async def test_a_silent_stream_has_a_heartbeat(
    server: Served, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_S", 0.2)
    run = GrowingRun(root)
    run.requests(0, 1)
    async with server.stream(path_of(root, run)) as events:
        await events.steps(1)
        before = events.comments
        asyncio.get_running_loop().call_later(1.5, run.requests, 1, 1)
        await events.steps(1)
        assert events.comments - before >= 2
    run.end()


async def test_the_list_tells_what_changes(server: Served, root: Path) -> None:
    async with server.stream("/api/runs/stream") as events:
        first = await events.next("runs")
        assert first == {"all": True, "upsert": [], "removed": [], "left_off": 0}
        run = GrowingRun(root)
        name = identity(root, run.folder)
        change = await events.next("runs")
        assert [(one["id"], one["state"]) for one in change["upsert"]] == [(name, "running")]
        assert not change["all"]
        done = finished_run(root)
        change = await events.next("runs")
        assert [one["id"] for one in change["upsert"]] == [identity(root, done)]
        run.end("pass")
        change = await events.next("runs")
        assert [(one["id"], one["verdict"]) for one in change["upsert"]] == [(name, "pass")]
        run.folder.rename(root.parent / "gone")
        change = await events.next("runs")
        assert (change["upsert"], change["removed"]) == ([], [name])


async def test_a_run_whose_folder_goes_away_ends_its_stream(server: Served, root: Path) -> None:
    run = GrowingRun(root)
    run.requests(0, 1)
    async with server.stream(path_of(root, run)) as events:
        await events.steps(1)
        run.folder.rename(root.parent / "gone")
        assert (await events.rest())[-1] == ("end", {"state": "removed"})


async def test_streams_end_with_the_server(root: Path) -> None:
    run = GrowingRun(root)
    run.requests(0, 1)
    async with served(root) as server, server.stream(path_of(root, run)) as events:
        await events.steps(1)
        async with server.stream("/api/runs/stream") as listing:
            await listing.next("runs")
            server.dashboard.streams._closing.set()
            await events.rest()
            await listing.rest()
    run.end()


async def test_too_many_streams_are_refused(
    server: Served, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geokv.dashboard.app.MOST_STREAMS", 1)
    async with server.stream("/api/runs/stream") as events:
        await events.next("runs")
        assert (await server.http.get("/api/runs/stream")).status_code == 503


def test_reading_stops_at_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event":"a"}\n{"event":"b"')
    steps, place = read_steps(Folder(tmp_path), Place("events.jsonl", 0))
    assert ([one["event"] for one in steps], place.offset) == (["a"], 14)
    assert read_steps(Folder(tmp_path), place) == ([], place)
    assert parse_place(str(place)) == place
    path.unlink()
    path.symlink_to(tmp_path / "other")
    (tmp_path / "other").write_text('{"event":"secret"}\n')
    assert read_steps(Folder(tmp_path), Place("events.jsonl", 0)) == ([], Place("events.jsonl", 0))
