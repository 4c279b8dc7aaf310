"""The dashboard on a real socket, and run folders that grow as tests want them to."""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import yaml
from handwritten import MANIFEST, SCENARIO, Run

from geokv.dashboard.app import Dashboard, build_app
from geokv.dashboard.guard import TOKEN_HEADER, Guard
from geokv.site.front import HttpServer, listen

TOKEN = "of-this-test"
WAIT_S = 10.0


class Served:
    """A running dashboard.

    Attributes:
        http: a client that says what a browser on the server's own page says.
    """

    def __init__(self, dashboard: Dashboard, port: int, http: httpx.AsyncClient) -> None:
        self.dashboard = dashboard
        self.port = port
        self.http = http

    async def post(self, path: str, body: Any, token: str = TOKEN) -> httpx.Response:
        return await self.http.post(path, json=body, headers={TOKEN_HEADER: token})

    async def ids(self) -> list[str]:
        return [run["id"] for run in (await self.http.get("/api/runs")).json()["runs"]]

    async def raw(self, target: str) -> tuple[int, str]:
        """GET a target as it stands: clients tidy paths up before they send them."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        async with asyncio.timeout(WAIT_S):
            answer = (await reader.read()).decode("utf-8", "replace")
        writer.close()
        await writer.wait_closed()
        return int(answer.split()[1]), answer

    @asynccontextmanager
    async def stream(self, path: str, last: str | None = None) -> AsyncIterator[Events]:
        headers = {} if last is None else {"last-event-id": last}
        async with self.http.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            yield Events(response)


class Events:
    """What a stream says, one event after another."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()
        self.last: str | None = None
        self.comments = 0

    async def next(self, event: str) -> Any:
        """The data of the next event of this name; others are passed over."""
        async with asyncio.timeout(WAIT_S):
            while True:
                name, data = await self._one()
                if name == event:
                    return data

    async def steps(self, least: int) -> list[dict[str, Any]]:
        """Steps until there are so many."""
        found: list[dict[str, Any]] = []
        while len(found) < least:
            found += await self.next("steps")
        return found

    async def rest(self) -> list[tuple[str, Any]]:
        """All that comes until the server closes the stream."""
        found = []
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    found.append(await self._one())
                except StopAsyncIteration:
                    return found

    async def _one(self) -> tuple[str, Any]:
        name, data = "", None
        while True:
            line = await anext(self._lines)
            if line.startswith(":"):
                self.comments += 1
            elif line.startswith("id: "):
                self.last = line[4:]
            elif line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = json.loads(line[6:])
            elif not line and name:
                return name, data


@asynccontextmanager
async def served(root: Path) -> AsyncIterator[Served]:
    """Serve a folder as ``geokv dashboard`` does."""
    listener = listen("127.0.0.1", 0, "a test")
    port = listener.getsockname()[1]
    stop = asyncio.Event()
    dashboard = Dashboard(root, stop, most_children=2)
    app = build_app(dashboard)
    app.add_middleware(Guard, token=TOKEN, names={"127.0.0.1", "localhost"}, port=port)
    serving = asyncio.create_task(HttpServer(app, listener, stalled_s=60).run(stop))
    try:
        base = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=WAIT_S) as http:
            yield Served(dashboard, port, http)
    finally:
        stop.set()
        async with asyncio.timeout(WAIT_S):
            await serving
        await dashboard.children.close()
        listener.close()


def identity(root: Path, run_dir: Path) -> str:
    return "~".join(run_dir.relative_to(root).parts)


def finished_run(root: Path, name: str = "by_hand/20260101-000000-0123abcd") -> Path:
    """A whole run with its summary and its reports, without steps."""
    run_dir = root / name
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    # Whoever looks sees all of it or nothing.
    apart = root / ".apart"
    shutil.copytree(_reported_on(), apart)
    return apart.rename(run_dir)


@cache
def _reported_on() -> Path:
    """Writing reports takes a second; tests copy what was written once."""
    from geokv.report.run_folder import write_all

    folder = Path(tempfile.mkdtemp(prefix="geokv-dashboard-"))
    atexit.register(shutil.rmtree, folder)
    Run().write(folder)
    write_all(folder)
    return folder


GROWING: list[GrowingRun] = []
"""Those of the test that runs; the fixture ``root`` lets go of what it has left."""


class GrowingRun:
    """A run folder as one that goes on has it: its events are locked while it does."""

    def __init__(self, root: Path, name: str = "by_hand/20260201-000000-0123abcd", **manifest: Any):
        self.folder = root / name
        self.folder.mkdir(parents=True)
        (self.folder / "scenario.yaml").write_text(yaml.safe_dump(SCENARIO))
        (self.folder / "manifest.json").write_text(json.dumps({**MANIFEST, **manifest}))
        self.stream = (self.folder / "events.jsonl").open("w", buffering=1)
        fcntl.flock(self.stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        GROWING.append(self)

    def add(self, event: str, **more: Any) -> None:
        self.stream.write(json.dumps({"event": event, **more}) + "\n")

    def raw(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()

    def requests(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            self.add("request", request_id=f"r{number}", t_ns=number, warmup=False)

    def end(self, verdict: str | None = "pass") -> None:
        """Let go of the lock; with a verdict there is a summary first."""
        if verdict is not None:
            (self.folder / "summary.json").write_text(
                json.dumps({"verdict": verdict, "cells": [], "expectations": []})
            )
        self.stream.close()
