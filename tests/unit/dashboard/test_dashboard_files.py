"""Files of runs: those, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import GrowingRun, Served, identity

from geokv.dashboard.files import list_files
from geokv.dashboard.reading import Folder, open_below, stamp_of


@pytest.fixture
def run(root: Path) -> Iterator[GrowingRun]:
    (root.parent / "secret.txt").write_text("secret")
    (root / "loose.txt").write_text("secret")
    made = GrowingRun(root)
    (made.folder / "plots").mkdir()
    (made.folder / "plots" / "one.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (made.folder / "table.csv").write_text("km\n0\n")
    (made.folder / ".hidden").write_text("secret")
    (made.folder / "linked.txt").symlink_to(root.parent / "secret.txt")
    (made.folder / "inner.txt").symlink_to("table.csv")
    (made.folder / "out").symlink_to(root.parent)
    os.mkfifo(made.folder / "pipe")
    yield made
    made.end()


async def test_files_are_listed_and_served(server: Served, root: Path, run: GrowingRun) -> None:
    name = identity(root, run.folder)
    detail = (await server.http.get(f"/api/runs/{name}")).json()
    assert [one["path"] for one in detail["files"]] == [
        "events.jsonl",
        "manifest.json",
        "scenario.yaml",
        "table.csv",
        "plots/one.svg",
    ]
    table = await server.http.get(f"/runs/{name}/table.csv")
    assert (table.text, table.headers["content-type"]) == ("km\n0\n", "text/csv; charset=utf-8")
    drawing = await server.http.get(f"/runs/{name}/plots/one.svg")
    assert drawing.headers["content-type"] == "image/svg+xml; charset=utf-8"
    assert drawing.headers["content-security-policy"].startswith("sandbox")


OUTSIDE = (
    "../loose.txt",
    "../../loose.txt",
    "../../../secret.txt",
    "%2e%2e/%2e%2e/loose.txt",
    "..%2f..%2floose.txt",
    "plots/../table.csv",
    "plots/%2e%2e/table.csv",
    "./table.csv",
    "//etc/passwd",
    "%2fetc%2fpasswd",
    "table.csv%00.html",
    "table.csv/",
    "linked.txt",
    "inner.txt",
    "out/secret.txt",
    ".hidden",
    "pipe",
    "plots",
    "",
    "nothing.txt",
    "a" * 3000,
)


@pytest.mark.parametrize("path", OUTSIDE)
async def test_nothing_else_is_served(
    server: Served, root: Path, run: GrowingRun, path: str
) -> None:
    status, text = await server.raw(f"/runs/{identity(root, run.folder)}/{path}")
    assert status == 404
    assert "secret" not in text and "km" not in text


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "..~..", "by_hand", "by_hand~..", "~", "out~x", "by_hand%2f20260201"]
)
async def test_ids_are_looked_up_and_never_become_paths(
    server: Served, root: Path, run: GrowingRun, name: str
) -> None:
    for path in (f"/runs/{name}/scenario.yaml", f"/api/runs/{name}", f"/api/runs/{name}/stream"):
        assert (await server.raw(path))[0] == 404, path


async def test_a_file_that_grows_is_sent_as_long_as_it_was_announced(
    server: Served, root: Path, run: GrowingRun
) -> None:
    big = run.folder / "log.txt"
    big.write_bytes(b"x" * 3_000_000)
    path = f"/runs/{identity(root, run.folder)}/log.txt"
    async with server.http.stream("GET", path) as answer:
        got = 0
        async for piece in answer.aiter_bytes():
            if not got:
                with big.open("ab") as more:
                    more.write(b"y" * 1_000_000)
            got += len(piece)
    assert got == 3_000_000


async def test_static_files_stay_in_their_folder(server: Served) -> None:
    assert (await server.http.get("/static/main.js")).status_code == 200
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py"):
        assert (await server.raw(path))[0] == 404


def test_a_name_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("one")
    with open_below(Folder(tmp_path), ["folder", "file"]) as stream:
        assert stream.read() == b"one"
    (tmp_path / "folder").rename(tmp_path / "moved")
    (tmp_path / "folder").symlink_to("moved")
    with pytest.raises(OSError):
        open_below(Folder(tmp_path), ["folder", "file"])
    assert stamp_of(Folder(tmp_path), "folder", "file") is None
    assert stamp_of(Folder(tmp_path), "moved", "file") is not None
    assert stamp_of(Folder(tmp_path, ("folder",)), "file") is None


@pytest.mark.parametrize("swapped", ["run", "parent"])
async def test_a_folder_swapped_for_a_link_after_it_was_listed_is_not_followed(
    server: Served, root: Path, run: GrowingRun, swapped: str
) -> None:
    """Whoever may write to the folder of runs cannot have the server read what lies elsewhere."""
    name = identity(root, run.folder)
    (run.folder / "summary.json").write_text('{"verdict": "pass", "reasons": ["secret"]}')
    assert (await server.http.get(f"/runs/{name}/table.csv")).text == "km\n0\n"
    listed = run.folder if swapped == "run" else run.folder.parent
    listed.rename(root.parent / "elsewhere")
    listed.symlink_to(root.parent / "elsewhere")
    assert (run.folder / "table.csv").is_file()
    assert (await server.http.get(f"/runs/{name}/table.csv")).status_code == 404
    answer = await server.http.get(f"/api/runs/{name}")
    assert (answer.status_code, "secret" in answer.text) == (404, False)
    assert list_files(Folder(root, tuple(name.split("~")))) == []
    async with server.stream(f"/api/runs/{name}/stream") as events:
        assert await events.next("end") == {"state": "removed"}
