"""After the last answer: leave everything alone, then look at the books of every site."""

from __future__ import annotations

import asyncio

from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.timers import LateTimers
from geokv.errors import RunError
from geokv.scenario.directory import CentralDirectory
from geokv.scenario.workload import OpenLoop

_SETTLE_S = 30.0
_LOOK_DEADLINE_S = 5.0


async def quiesce(stage: Stage) -> None:
    """Wait, let every running site settle, and note what its books say.

    Notes ``integrity``, ``pools`` and ``held`` of each, ``directory`` of the site that keeps
    the table, what each has said to it (``traffic``), and one ``quiesced``.
    """
    workload = stage.scenario.workload
    assert isinstance(workload, OpenLoop), "drills are open loop"
    await asyncio.sleep(workload.quiesce)
    running = [site for site in stage.sites if stage.is_up(site)]
    fell = {site: stage.fleet.sites[site].last_words() for site in stage.fell()}
    said = [f"site {site} ended by itself: {words}" for site, words in fell.items()]
    said += [
        words for words in await asyncio.gather(*(_settle(stage, s) for s in running)) if words
    ]
    for site in running:
        await _look(stage, site, "integrity", "/integrity")
        await _look(stage, site, "pools", "/pools")
        await _look(stage, site, "held", "/held")
    directory = stage.scenario.cache.directory
    if isinstance(directory, CentralDirectory) and directory.site in running:
        await _look(stage, directory.site, "directory", "/directory")
    for site in running:
        await _look(stage, site, "traffic", "/stats")
    stage.note("quiesced", ok=not said, said="; ".join(said))


async def note_machine(stage: Stage, timers: LateTimers) -> None:
    """Note ``machine``, in real time only: timers that came late since they were last asked, and by
    how much computing outlasted its charge at each site that runs, in its present life; None where
    it does not answer."""
    running = [site for site in stage.sites if stage.is_up(site)]
    late_ns = {site: await _late_ns(stage, site) for site in running}
    compute = stage.scenario.deployment.compute
    stage.note("machine", compute=compute, timers=timers.since(), late_ns=late_ns)


async def _late_ns(stage: Stage, site: str) -> int | None:
    try:
        stats = await stage.control(site).get("/stats", _LOOK_DEADLINE_S)
    except RunError:
        return None
    return int(stats["late_ns"])


async def _settle(stage: Stage, site: str) -> str:
    """What hindered it; empty when everything it had under way has ended."""
    try:
        await stage.control(site).patient("/settle", _SETTLE_S)
    except RunError as error:
        return error.message
    return ""


async def _look(stage: Stage, site: str, op: str, path: str) -> None:
    try:
        data = await stage.control(site).get(path, _LOOK_DEADLINE_S)
    except RunError as error:
        stage.note(op, site, error=error.message)
        return
    if op == "integrity":
        data = {"result": data.pop("integrity"), **data}
    elif op == "traffic":
        data = {"calls": data["cache"]["directory"].get("traffic", {})}
    stage.note(op, site, **data)
