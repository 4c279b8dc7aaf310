"""The coordinator's way to a site: HTTP on a UNIX socket, never over an emulated link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import Field

from geokv.clock import now_ns
from geokv.config import Strict
from geokv.errors import GeokvError
from geokv.site.history import HistoryFile
from geokv.site.planting import damage, put_foreign, tenant_named
from geokv.site.settings import Reuse, Tenant
from geokv.site.worker import Worker
from geokv.units import NS_PER_S

Deadline = Annotated[float, Field(gt=0, le=3600)]


class Policy(Strict):
    reuse: Reuse


class Drop(Strict):
    tiers: list[str]


class Within(Strict):
    deadline_s: Deadline = 30.0


class Warm(Strict):
    bytes_per_stream: Annotated[int, Field(ge=0)]
    deadline_s: Deadline = 60.0


class Tokens(Strict):
    tenant: str
    tokens: Annotated[list[int], Field(min_length=1)]


class Plant(Tokens):
    """Wrong KV for the whole chunks of ``tokens``: the donor's, or a damaged block."""

    donor: Tokens | None = None


def build_control(worker: Worker, history: HistoryFile, tenants: Sequence[Tenant] = ()) -> FastAPI:
    """Settings for the next requests, and everything that is collected afterwards."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/policy")
    async def policy(body: Policy) -> dict[str, str]:
        worker.reuse = body.reuse
        return {"reuse": body.reuse}

    @app.post("/drop")
    async def drop(body: Drop) -> dict[str, int]:
        return await worker.drop(body.tiers)

    @app.post("/connect")
    async def connect(body: Within) -> dict[str, bool]:
        await worker.cache.reconnect(_at(body.deadline_s))
        return {"connected": True}

    @app.post("/warm")
    async def warm(body: Warm) -> dict[str, int]:
        started_ns = now_ns()
        await worker.cache.warm(body.bytes_per_stream, _at(body.deadline_s))
        return {"took_ns": now_ns() - started_ns}

    @app.post("/settle")
    async def settle(body: Within) -> dict[str, bool]:
        await worker.settle(_at(body.deadline_s))
        history.flush()
        return {"settled": True}

    @app.get("/requests/{request_id:path}")
    async def request(request_id: str) -> dict[str, Any]:
        record = worker.records.get(request_id)
        return {"record": record.as_dict() if record else None}

    @app.get("/stats")
    async def stats() -> dict[str, Any]:
        return {
            "cache": worker.cache.stats(),
            "engine": asdict(worker.engine.stats()),
            "loop": asdict(worker.loop.stats()),
            "late_ns": worker.engine.compute.late_ns,
        }

    @app.get("/integrity")
    async def integrity() -> dict[str, str]:
        try:
            worker.check_integrity()
        except GeokvError as error:
            return {"integrity": error.message}
        return {"integrity": "ok"}

    @app.post("/plant")
    async def plant(body: Plant) -> dict[str, int]:
        named = {tenant.name: tenant for tenant in tenants}
        tenant = tenant_named(named, body.tenant)
        if body.donor is None:
            return {"chunks": damage(worker, tenant, body.tokens)}
        donor = tenant_named(named, body.donor.tenant)
        return {"chunks": put_foreign(worker, tenant, body.tokens, donor, body.donor.tokens)}

    @app.exception_handler(GeokvError)
    async def on_error(_: Request, error: GeokvError) -> JSONResponse:
        return JSONResponse({"error": error.message, "hint": error.hint}, 500)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"][1:])
        return JSONResponse({"error": f"{path}: {first['msg']}", "hint": ""}, 400)

    return app


def _at(seconds: float) -> int:
    return now_ns() + round(seconds * NS_PER_S)
