"""The server: routes over a folder of runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException as AnyHTTPException

from geokv.dashboard.catalog import Wish, catalogue, check, size_of
from geokv.dashboard.children import Children
from geokv.dashboard.detail import detail_of
from geokv.dashboard.files import send_file
from geokv.dashboard.head import Head
from geokv.dashboard.orders import Order, send_order
from geokv.dashboard.reading import Folder
from geokv.dashboard.shelf import Shelf, identity_of
from geokv.dashboard.streams import MOST_STREAMS, EventStream, Streams
from geokv.dashboard.tail import parse_place
from geokv.errors import GeokvError
from geokv.report.disk import explained
from geokv.report.run_folder import stamped_folder
from geokv.scenario import Scenario

STATIC = Path(__file__).parent / "static"
READ = ["GET", "HEAD"]
"""Of all that has an end; a stream has none."""


class Dashboard:
    """What the routes share.

    Args:
        root: the folder of runs.
        closing: set when the server ends.
        most_children: runs started here that may go on at once.
    """

    def __init__(self, root: Path, closing: asyncio.Event, most_children: int) -> None:
        self.shelf = Shelf(root)
        self.children = Children(most_children)
        self.streams = Streams(self.shelf, closing, self.detail)

    def detail(self, head: Head, folder: Folder) -> dict[str, Any]:
        """A run in full, and whether it was started here."""
        child = self.children.of(folder.path)
        started = None
        if child is not None:
            started = {"pid": child.pid, "status": child.status, "said": child.said}
        return {**detail_of(head, folder), "started_here": started}

    def folder(self, identity: str) -> Folder:
        """Where a listed run lies.

        Raises:
            HTTPException: 404.
        """
        folder = self.shelf.folder(identity)
        if folder is None:
            raise HTTPException(404, "no such run")
        return folder


def build_app(dashboard: Dashboard) -> FastAPI:
    """The routes; ``guard.Guard`` has to stand before them."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    _say_errors(app)
    _reading(app, dashboard)
    _changing(app, dashboard)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.api_route("/", methods=READ)
    async def page() -> Response:
        return FileResponse(STATIC / "index.html")

    @app.api_route("/favicon.ico", methods=READ)
    async def icon() -> Response:
        return FileResponse(STATIC / "icon.svg", media_type="image/svg+xml")

    return app


def _new_folder(root: Path, scenario: Scenario) -> Path:
    parent = root / scenario.name
    try:
        parent.mkdir(parents=True, exist_ok=True)
        return stamped_folder(parent, scenario.hash[:8])
    except OSError as error:
        raise explained(error, parent) from None


def _say_errors(app: FastAPI) -> None:
    """Every error is ``{"error": message, "hint": hint}``."""

    async def geokv_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, GeokvError), "registered for these"
        return JSONResponse({"error": error.message, "hint": error.hint}, 409)

    async def http_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, AnyHTTPException), "registered for these"
        said = {"error": error.detail, "hint": ""}
        return JSONResponse(said, error.status_code, headers=error.headers)

    async def any_error(_: Request, error: Exception) -> Response:
        said = f"{type(error).__name__} in the server; its terminal shows where"
        return JSONResponse({"error": said, "hint": ""}, 500)

    async def body_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError), "registered for these"
        lines = [
            "the body is no JSON"
            if one["type"] == "json_invalid"
            else f"{'.'.join(str(part) for part in one['loc'] if part != 'body')}: {one['msg']}"
            for one in error.errors()
        ]
        return JSONResponse({"error": "\n".join(lines), "hint": ""}, 422)

    app.add_exception_handler(GeokvError, geokv_error)
    # Of the router too: no such route, another method; FastAPI's own are of this class.
    app.add_exception_handler(AnyHTTPException, http_error)
    app.add_exception_handler(RequestValidationError, body_error)
    app.add_exception_handler(Exception, any_error)


def _reading(app: FastAPI, dashboard: Dashboard) -> None:
    shelf, streams = dashboard.shelf, dashboard.streams

    def room() -> None:
        if streams.open >= MOST_STREAMS:
            raise HTTPException(503, f"{MOST_STREAMS} pages are listening; close one")

    @app.api_route("/api/runs", methods=READ)
    async def runs() -> dict[str, Any]:
        heads = await streams.heads()
        return {
            "root": str(shelf.root),
            "runs": [head.to_json() for head in heads.values()],
            "left_off": shelf.left_off,
        }

    @app.get("/api/runs/stream")
    async def runs_stream() -> Response:
        room()
        return EventStream(streams.of_list())

    @app.api_route("/api/runs/{identity}", methods=READ)
    async def run(identity: str) -> dict[str, Any]:
        folder = await run_in_threadpool(dashboard.folder, identity)
        head = await run_in_threadpool(shelf.head, identity)
        if head is None:
            raise HTTPException(404, "no such run")
        return await run_in_threadpool(dashboard.detail, head, folder)

    @app.get("/api/runs/{identity}/stream")
    async def run_stream(
        identity: str,
        last_event_id: Annotated[str, Header(max_length=64)] = "",
        last: Annotated[str, Query(max_length=64)] = "",
    ) -> Response:
        """``last`` is for a page that had closed its stream: only a browser's own attempts to
        connect again have the header."""
        room()
        await run_in_threadpool(dashboard.folder, identity)
        return EventStream(streams.of_run(identity, parse_place(last_event_id or last)))

    @app.api_route("/runs/{identity}/{path:path}", methods=READ)
    async def file(identity: str, path: str) -> Response:
        folder = await run_in_threadpool(dashboard.folder, identity)
        try:
            return await send_file(folder, path)
        except OSError:
            raise HTTPException(404, "no such file of this run") from None

    @app.api_route("/api/started/{identity}", methods=READ)
    async def started(identity: str) -> dict[str, Any]:
        """Of a run that may not have come so far as to be listed."""
        for child in dashboard.children.all():
            if identity_of(shelf.root, child.run_dir) == identity:
                return {"pid": child.pid, "status": child.status, "said": child.said}
        raise HTTPException(404, "this run was not started here")

    @app.api_route("/api/scenarios", methods=READ)
    async def scenarios() -> dict[str, Any]:
        return {"scenarios": await run_in_threadpool(catalogue)}


def _changing(app: FastAPI, dashboard: Dashboard) -> None:
    @app.post("/api/check")
    async def check_wish(wish: Wish) -> dict[str, Any]:
        checked = await run_in_threadpool(check, wish)
        return {
            "name": checked.scenario.name,
            "title": checked.scenario.title,
            "command": " ".join(["geokv", "run", *checked.arguments]),
            **size_of(checked.scenario),
        }

    @app.post("/api/start")
    async def start(wish: Wish) -> dict[str, Any]:
        checked = await run_in_threadpool(check, wish)
        dashboard.children.require_room()
        run_dir = await run_in_threadpool(_new_folder, dashboard.shelf.root, checked.scenario)
        child = await dashboard.children.start(checked.arguments, run_dir)
        return {"id": identity_of(dashboard.shelf.root, run_dir), "pid": child.pid}

    @app.post("/api/runs/{identity}/command")
    async def command(identity: str, order: Order) -> dict[str, Any]:
        folder = await run_in_threadpool(dashboard.folder, identity)
        return {"id": await run_in_threadpool(send_order, folder, order)}

    @app.post("/api/runs/{identity}/end")
    async def end(identity: str) -> dict[str, Any]:
        folder = await run_in_threadpool(dashboard.folder, identity)
        child = dashboard.children.of(folder.path)
        if child is None or child.status is not None:
            raise HTTPException(409, "only a run that was started here and goes on can be ended")
        dashboard.children.end(child)
        return {"pid": child.pid}
