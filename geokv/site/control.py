"""The coordinator's way to a site: HTTP on a UNIX socket, never over an emulated link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import Field

from geokv.cache.ownership import SequencedDirectory
from geokv.clock import now_ns
from geokv.config import Strict
from geokv.engine.compute import ChargedCompute
from geokv.errors import CacheError, DamagedChunks, GeokvError
from geokv.site.history import HistoryFile
from geokv.site.planting import damage, put_foreign, rot
from geokv.site.pools import pools
from geokv.site.pulling import pull
from geokv.site.settings import Reuse, Tenant
from geokv.site.tenants import Roster
from geokv.site.worker import Worker
from geokv.units import NS_PER_S

Deadline = Annotated[float, Field(gt=0, le=3600)]


class Policy(Strict):
    """Which tiers requests may reuse from now on."""

    reuse: Reuse


class Drop(Strict):
    """Tiers to empty; ``tell`` false keeps it from the directory."""

    tiers: list[str]
    tell: bool = True


class Within(Strict):
    """Something that must be done by a deadline."""

    deadline_s: Deadline = 30.0


class Connect(Within):
    """``first``: this life of the site joins the others; nothing that is open is replaced."""

    first: bool = False


class Warm(Strict):
    """How much is sent over each connection so that its window is open."""

    bytes_per_stream: Annotated[int, Field(ge=0)]
    deadline_s: Deadline = 60.0


class Tokens(Strict):
    """A prompt of one tenant."""

    tenant: str
    tokens: Annotated[list[int], Field(min_length=1)]


class Pull(Tokens):
    """A fetch that no request asked for; ``name`` is who did, ``source`` whom it asks first."""

    name: Annotated[str, Field(min_length=1, max_length=80)]
    source: str | None = None
    deadline_s: Deadline = 5.0


class Plant(Tokens):
    """Wrong KV for the whole chunks of ``tokens``: the donor's, or a damaged block."""

    donor: Tokens | None = None


class Rot(Strict):
    """How many chunks of a tier get one flipped bit each, drawn from ``seed``."""

    tier: Literal["dram", "disk"] = "dram"
    chunks: Annotated[int, Field(ge=1)] = 1
    seed: int = 0


class Slow(Strict):
    """How many times as long the site's GPU and disk take from now on; what is left out stays."""

    gpu: Annotated[float, Field(gt=0, le=1e6)] | None = None
    disk: Annotated[float, Field(gt=0, le=1e6)] | None = None


class Shrink(Strict):
    """Which share of its places a tier may use from now on."""

    dram_keep: Annotated[float, Field(gt=0, le=1)]


class Table(Strict):
    """What becomes of the directory's table at the site that keeps it: it is kept for a
    stale restart, answers nobody any more, or begins anew."""

    do: Literal["keep", "stop", "start"]
    how: Literal["empty", "stale"] = "empty"


class OfTenant(Strict):
    """A tenant by name."""

    tenant: str


class PurgeTenant(OfTenant):
    """A purge of one tenant, by a name of its own, so that asking twice purges once."""

    purge_id: Annotated[str, Field(min_length=1, max_length=128)]
    deadline_s: Deadline = 30.0


def build_control(
    worker: Worker, history: HistoryFile, tenants: Roster | Sequence[Tenant] = ()
) -> FastAPI:
    """Settings for the next requests, and everything that is collected afterwards."""
    roster = tenants if isinstance(tenants, Roster) else Roster(tenants)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/policy")
    async def policy(body: Policy) -> dict[str, str]:
        worker.reuse = body.reuse
        return {"reuse": body.reuse}

    @app.post("/drop")
    async def drop(body: Drop) -> dict[str, int]:
        return await worker.drop(body.tiers, tell=body.tell)

    @app.post("/connect")
    async def connect(body: Connect) -> dict[str, bool]:
        cache = worker.cache
        await (cache.connect if body.first else cache.reconnect)(_at(body.deadline_s))
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
        return {"record": worker.records.describe(request_id)}

    @app.get("/stats")
    async def stats() -> dict[str, Any]:
        return {
            "cache": worker.cache.stats(),
            "engine": asdict(worker.engine.stats()),
            "loop": asdict(worker.loop.stats()),
            "late_ns": worker.engine.compute.late_ns,
        }

    @app.get("/integrity")
    async def integrity() -> dict[str, Any]:
        try:
            worker.check_integrity()
        except DamagedChunks as error:
            keys = {tier: [key.hex() for key in found] for tier, found in error.keys.items()}
            return {"integrity": error.message, "damaged": keys}
        except GeokvError as error:
            return {"integrity": error.message}
        return {"integrity": "ok"}

    @app.post("/plant")
    async def plant(body: Plant) -> dict[str, int]:
        tenant = roster.named(body.tenant)
        if body.donor is None:
            return {"chunks": damage(worker, tenant, body.tokens)}
        donor = roster.named(body.donor.tenant)
        return {"chunks": put_foreign(worker, tenant, body.tokens, donor, body.donor.tokens)}

    @app.post("/pull")
    async def pulled(body: Pull) -> dict[str, Any]:
        tenant = roster.named(body.tenant)
        until_ns = _at(body.deadline_s)
        return await pull(worker, tenant, body.tokens, until_ns, body.name, body.source)

    @app.get("/pools")
    async def every_pool() -> dict[str, dict[str, int]]:
        return pools(worker)

    @app.get("/held")
    async def held() -> dict[str, list[str]]:
        tiers = worker.cache.tiers
        names = ["dram", "disk"] if tiers.disk is not None else ["dram"]
        return {name: [key.hex() for key in tiers.keys(name)] for name in names}

    @app.get("/directory")
    async def directory() -> dict[str, Any]:
        entries = worker.cache.directory.entries()
        keys = {key.hex(): list(sites) for key, sites in (entries or {}).items()}
        return {"here": entries is not None, "keys": keys}

    @app.post("/directory")
    async def table(body: Table) -> dict[str, Any]:
        directory = worker.cache.directory
        if not isinstance(directory, SequencedDirectory):
            raise CacheError(
                "only a directory whose events are numbered can lose its table",
                "set cache.directory.anti_entropy",
            )
        if body.do == "keep":
            directory.keep_table()
        elif body.do == "stop":
            directory.stop_table()
        else:
            directory.start_table(body.how)
        return directory.stats()

    @app.post("/purge")
    async def purge(body: PurgeTenant) -> dict[str, Any]:
        name = roster.named(body.tenant).name
        receipt = await worker.cache.purge(name, body.purge_id, _at(body.deadline_s))
        return {**asdict(receipt), "bound_ns": worker.cache.purge_bound_ns}

    @app.post("/revoke")
    async def revoke(body: OfTenant) -> dict[str, str]:
        roster.revoke(body.tenant)
        return {"revoked": body.tenant}

    @app.post("/rot")
    async def rotten(body: Rot) -> dict[str, list[str]]:
        keys = rot(worker, body.tier, body.chunks, body.seed)
        return {"keys": [key.hex() for key in keys]}

    @app.post("/slow")
    async def slow(body: Slow) -> dict[str, float]:
        compute, disk = worker.engine.compute, worker.cache.tiers.disk
        if not isinstance(compute, ChargedCompute):
            raise CacheError(
                "what is really computed cannot be slowed down",
                "set deployment.compute: charged",
            )
        if body.gpu is not None:
            compute.slowness = body.gpu
        if body.disk is not None:
            if disk is None:
                raise CacheError(f"site {worker.cache.site!r} has no disk to slow down")
            disk.time.slowness = body.disk
        return await slowness()

    @app.get("/slow")
    async def slowness() -> dict[str, float]:
        found, disk = {}, worker.cache.tiers.disk
        if isinstance(worker.engine.compute, ChargedCompute):
            found["gpu"] = worker.engine.compute.slowness
        if disk is not None:
            found["disk"] = disk.time.slowness
        return found

    @app.post("/shrink")
    async def shrink(body: Shrink) -> dict[str, int]:
        tier = worker.cache.tier
        keep = max(1, round(tier.slots * body.dram_keep))
        return {"slots": keep, "evicted": tier.shrink(keep)}

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
