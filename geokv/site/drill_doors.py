"""Doors in the control socket of a site that takes part in a drill, and of no other."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import FastAPI
from pydantic import Field

from geokv.cache.ownership import SequencedDirectory
from geokv.clock import now_ns
from geokv.config import Strict
from geokv.engine.compute import ChargedCompute
from geokv.errors import CacheError
from geokv.site.meddling.chunks import ChunkDamage
from geokv.site.meddling.completions import LostCompletions
from geokv.site.meddling.events import EventWay
from geokv.site.meddling.gauge import gauge_disk, gauge_gpu
from geokv.site.meddling.storm import storm
from geokv.site.tenants import Roster
from geokv.site.worker import Worker
from geokv.units import NS_PER_S

Chance = Annotated[float, Field(ge=0, le=1)]
OneIn = Annotated[int, Field(ge=1)]


class Damage(Strict):
    """Of so many chunks that go to ``peers`` one is damaged; no peers end it."""

    name: str
    peers: list[str]
    one_in: OneIn = 1
    seed: int = 0


class Lose(Strict):
    """Of so many chunks one is not completed; 0 ends it."""

    one_in: Annotated[int, Field(ge=0)]


class Events(Strict):
    """What becomes of events on their way to the directory; what is left out stays."""

    loss: Chance | None = None
    duplicate: Chance | None = None
    window_s: Annotated[float, Field(ge=0)] | None = None
    seed: int = 0


class Storm(Strict):
    """``rounds`` times as many chunks as the DRAM tier has places, or just ``chunks``."""

    rounds: Annotated[int, Field(ge=0)] = 0
    chunks: Annotated[int, Field(ge=0)] = 0
    seed: int = 0
    deadline_s: Annotated[float, Field(gt=0, le=3600)] = 30.0


class Gauge(Strict):
    """Which part is to do one small thing."""

    part: Literal["gpu", "disk"]


def add_drill_doors(app: FastAPI, worker: Worker, roster: Roster) -> None:
    """Give a site's control socket what only drills may do."""
    cache = worker.cache
    damage: list[ChunkDamage] = []
    losses: list[LostCompletions] = []
    ways: list[EventWay] = []

    @app.post("/chunks")
    async def chunks(body: Damage) -> dict[str, int]:
        if not damage:
            damage.append(ChunkDamage(cache.source, body.seed))
        damage[0].set(body.name, body.peers, body.one_in)
        return {name: aim.damaged for name, aim in damage[0].aims.items()}

    @app.post("/completions")
    async def completions(body: Lose) -> dict[str, int]:
        if not losses:
            losses.append(LostCompletions(cache.site))
        losses[0].set(body.one_in)
        return {"lost": losses[0].lost}

    @app.post("/events")
    async def events(body: Events) -> dict[str, int]:
        if not isinstance(cache.directory, SequencedDirectory):
            raise CacheError(
                "only events that are numbered can be meddled with",
                "set cache.directory.anti_entropy",
            )
        if not ways:
            ways.append(EventWay(cache.directory, body.seed))
        window_s = body.window_s
        ways[0].set(
            body.loss, body.duplicate, None if window_s is None else round(window_s * NS_PER_S)
        )
        return dict(ways[0].counters)

    @app.get("/meddled")
    async def meddled() -> dict[str, Any]:
        """What has been done since it was last asked for, and when for the first time."""
        found: dict[str, dict[str, int]] = {}
        for name, aim in damage[0].aims.items() if damage else ():
            if aim.damaged:
                found[f"damaged by {name}"] = {"times": aim.damaged, "first_ns": aim.first_ns}
        if losses and losses[0].lost:
            found["uncompleted"] = {"times": losses[0].lost, "first_ns": losses[0].first_ns}
        for what, first_ns in ways[0].first_ns.items() if ways else ():
            found[what] = {"times": ways[0].counters[what], "first_ns": first_ns}
        return found

    @app.post("/gauge")
    async def gauge(body: Gauge) -> dict[str, int]:
        compute, disk = worker.engine.compute, cache.tiers.disk
        if body.part == "gpu":
            if not isinstance(compute, ChargedCompute):
                raise CacheError("what is really computed is charged nothing")
            return (await gauge_gpu(compute))._asdict()
        if disk is None:
            raise CacheError(f"site {cache.site!r} has no disk")
        return (await gauge_disk(disk.time))._asdict()

    @app.post("/storm")
    async def fill(body: Storm) -> dict[str, int]:
        chunks = body.chunks + body.rounds * cache.tier.slots
        until_ns = now_ns() + round(body.deadline_s * NS_PER_S)
        before = cache.tier.evictions
        stored = await storm(worker, roster.last, chunks, body.seed, until_ns)
        return {"stored": stored, "evicted": cache.tier.evictions - before}
