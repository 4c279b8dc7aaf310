"""One cell of a drill, start to end: lab, sites, stream, timeline, books, cold answers."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from geokv.clock import BEAT_NS, on_the_beat
from geokv.coordinator.deploy import site_settings, tenants
from geokv.coordinator.drill.client import StreamClient, run_stream_client
from geokv.coordinator.drill.cold import ColdAnswer, ColdQuestion, ask_cold, run_cold
from geokv.coordinator.drill.disks import prepare_disk, release_disks
from geokv.coordinator.drill.log import DrillLog
from geokv.coordinator.drill.moments import Moments
from geokv.coordinator.drill.quiesce import note_machine, quiesce
from geokv.coordinator.drill.schedule import Due, schedule, trace_schedule
from geokv.coordinator.drill.setup import do
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.drill.stream import StreamRunner
from geokv.coordinator.drill.timeline import Timeline, faults_of
from geokv.coordinator.fleet import Fleet
from geokv.coordinator.live.beside import Beside
from geokv.coordinator.live.desk import Desk, in_drill, refuse
from geokv.coordinator.prompts import StreamPrompts, TracePrompts
from geokv.coordinator.timers import LateTimers
from geokv.lab.build import Lab
from geokv.lab.check import check_links
from geokv.lab.plan import compile_plan
from geokv.live.events import planned_links
from geokv.scenario import Cell, Scenario
from geokv.scenario.workload import OpenLoop, Stream
from geokv.site.settings import SiteSettings

_LOOKS = 3
_WARM_FLOOR_BYTES = 4 * 2**20
_LONG_S = 60.0


class DrillRunner:
    """Runs cells one after another, each with a lab and sites of its own.

    Args:
        run: the scenario of the run; keys, secrets and prompts are the same in all its cells.
        records: where histories go: ``history-CELL-SITE.jsonl`` and
            ``history-CELL-coordinator.jsonl``.
        watch: entered with each built lab before a site starts, left with it.
        desk: of a live run: where commands come in.
        timers: counts late ones; on the wall clock only.
    """

    def __init__(
        self,
        run: Scenario,
        records: Path,
        progress: Callable[..., None],
        watch: Callable[[Lab], AbstractContextManager[Any]] = nullcontext,
        desk: Desk | None = None,
        timers: LateTimers | None = None,
    ) -> None:
        self._run = run
        self._timers = timers
        self._desk = desk
        self._watch = watch
        self._records = records
        self._progress = progress
        self._cold: dict[str, list[ColdAnswer]] = {}

    def run(self, cell: Cell) -> None:
        """Start to end.

        Raises:
            GeokvError: the lab, a site or a client could not be made, or died outside the
                timeline; what the history has by then is kept.
        """
        scenario = cell.scenario
        plan = compile_plan(cell.topology, scenario.deployment.byte_scale, scenario.seed)
        self._progress("cell", cell=cell.index, label=cell.label, links=planned_links(plan))
        control = Path(tempfile.mkdtemp(prefix="geokv-drill-", dir="/run"))
        log = DrillLog(self._records / f"history-{cell.index}-coordinator.jsonl")
        try:
            with Lab.build(plan) as lab, self._watch(lab), Fleet() as fleet:
                self._start(cell, lab, fleet, control)
                told = partial(self._progress, cell=cell.index)
                stage = Stage(scenario, lab, fleet, log, told)
                beside = None if self._desk is None else Beside(self._desk, stage)
                asyncio.run(self._drill(cell, stage, beside))
        finally:
            log.close()
            release_disks(control)
            shutil.rmtree(control, ignore_errors=True)

    def _start(self, cell: Cell, lab: Lab, fleet: Fleet, control: Path) -> None:
        sabotage = cell.control.sabotage if cell.control is not None else None
        every = site_settings(
            self._run, cell.scenario, lab, control, self._records, str(cell.index), 1
        )
        for settings in every:
            history = self._records / f"history-{cell.index}-{settings.name}.jsonl"
            prepare_disk(settings)
            fleet.start_site(
                replace(settings, history_path=str(history), audit=True, sabotage=sabotage),
                lab.netns(settings.name),
            )
        self._progress("sites", sites=[settings.name for settings in every])

    async def _drill(self, cell: Cell, stage: Stage, beside: Beside | None) -> None:
        scenario, workload = cell.scenario, cell.scenario.workload
        assert isinstance(workload, OpenLoop), "drills are open loop"
        await on_the_beat()
        stage.note(
            "drill-begin",
            cell=cell.index,
            label=cell.label,
            control=cell.control is not None,
            sabotage=stage.settings(stage.sites[0]).sabotage or "",
            publish=scenario.cache.tiers.publish,
            exact=scenario.deployment.exact,
        )
        clients = self._clients(stage, workload)
        try:
            for site in stage.sites:
                await stage.ready(site)
            # Work takes no time on this clock, and time does not go on before it is done: who
            # still starts would read the clock, and so push it, between a probe and its echo.
            await on_the_beat()
            if self._timers is not None:
                self._timers.since()
            self._check(stage, "before")
            moments = Moments()
            stream = StreamRunner(stage, tenants(self._run), clients, moments)
            await self._connect(stage, workload)
            due = await self._due(stage, stream, workload)
            timeline = Timeline(stage, moments, faults_of(stage))
            start_ns = await on_the_beat() + BEAT_NS
            stage.note("stream-begin", requests=len(due), start_ns=start_ns)
            watching, serving = _live(beside, cell, stage, timeline, stream, start_ns)
            async with stage.protection(), watching:
                faults = asyncio.ensure_future(timeline.run(start_ns))
                try:
                    async with serving:
                        sent = await stream.run(start_ns, due)
                    stage.note("stream-end")
                    timeline.end()
                    await faults
                    await timeline.settled()
                finally:
                    faults.cancel()
                    timeline.cancel()
                self._progress("quiesce", cell=cell.index)
                await quiesce(stage)
            if self._timers is not None:
                await note_machine(stage, self._timers)
            self._check(stage, "after")
            self._note_cold(stage, due[:sent])
            stage.note("drill-end")
        finally:
            for client in clients.values():
                client.stop_listening()
            await stage.aclose()

    # -- before ------------------------------------------------------------------

    def _clients(self, stage: Stage, workload: OpenLoop) -> dict[str, StreamClient]:
        clients = {}
        for site in workload.asked:
            process, orders = stage.fleet.start_helper(
                f"client-{site}", run_stream_client, stage.lab.access_netns(site)
            )
            clients[site] = StreamClient(process, orders)
        return clients

    async def _connect(self, stage: Stage, workload: OpenLoop) -> None:
        """Connections between all sites, with open congestion windows if asked for."""
        for site in stage.sites:
            await stage.control(site).patient("/connect", _LONG_S)
        substrate = stage.scenario.cache.substrate
        if not substrate.warm:
            return
        plan = stage.lab.plan
        for site in workload.fetching:
            others = [name for name in workload.sources if name != site]
            bdp_bytes = max((plan.path(name, site).bdp_bytes for name in others), default=0)
            per_stream = max(_WARM_FLOOR_BYTES, 8 * bdp_bytes // substrate.streams)
            await stage.control(site).patient("/warm", _LONG_S, bytes_per_stream=per_stream)

    async def _due(self, stage: Stage, stream: StreamRunner, workload: OpenLoop) -> list[Due]:
        """Prepare caches; then all that is to be asked."""
        seed = stage.scenario.seed
        if isinstance(workload, Stream):
            prompts = StreamPrompts(workload, seed)
            await self._prepare(stage, stream, workload, prompts)
            return schedule(workload, prompts, seed)
        first, due = trace_schedule(workload, TracePrompts(workload, seed), seed)
        for one in first:
            await do(stage, one.setup)
            stream.setup += one.setup
            await stream.prepare(one.number, one.tenant, one.site, one.tokens, one.max_tokens)
        return due

    async def _prepare(
        self, stage: Stage, stream: StreamRunner, workload: Stream, prompts: StreamPrompts
    ) -> None:
        """Each provider computes every prefix by itself; then all may fetch."""
        for site in workload.providers:
            control = stage.control(site)
            await control.post("/policy", reuse="local")
            stream.setup.append(f"reuse {site} local")
            for tenant in range(workload.prepared_for):
                first = tenant * workload.prefixes if workload.texts == "own" else 0
                for number in range(first, first + workload.prefixes):
                    tokens = prompts.preparing(0, number)
                    await stream.prepare(number, tenant, site, tokens)
            await control.patient("/settle", _LONG_S)
            stream.setup.append(f"settle {site}")
        for site in workload.providers:
            await stage.control(site).post("/policy", reuse="remote")
            stream.setup.append(f"reuse {site} remote")

    # -- around ------------------------------------------------------------------

    def _check(self, stage: Stage, phase: str) -> None:
        """Every link against its plan (INV-7). Nothing else is on them but heartbeats, which a
        probe may meet: a link that is off is looked at again."""
        self._progress("check", phase=phase)
        clock = stage.scenario.clock
        for found in check_links(stage.lab, clock=clock):
            for _ in range(_LOOKS - 1):
                if not found.ok:
                    (found,) = check_links(stage.lab, [found.link], clock=clock)
            stage.note(
                "links",
                phase=phase,
                link=found.link,
                ok=found.ok,
                rtt_ns=found.rtt_measured_ns,
                rtt_asked_ns=found.rtt_asked_ns,
                goodput_bps=None
                if found.goodput_ratio is None
                else round(found.goodput_ratio * found.goodput_asked_bps),
                goodput_asked_bps=found.goodput_asked_bps,
                problems=found.problems,
            )

    def _note_cold(self, stage: Stage, due: list[Due]) -> None:
        """What a cold engine answers to every prompt; computed once for cells that ask alike."""
        if not due:
            return
        settings = stage.settings(stage.sites[0])
        asked = list({one.prompt: one for one in due}.values())
        key = repr((_content(settings), [(one.max_tokens, one.tokens) for one in asked]))
        if key not in self._cold:
            self._progress("cold", prompts=len(asked))
            _, orders = stage.fleet.start_helper("cold", run_cold, settings)
            questions = [ColdQuestion(one.prompt, one.tokens, one.max_tokens) for one in asked]
            self._cold[key] = ask_cold(orders, questions)
        for answer in self._cold[key]:
            stage.note("cold", prompt=answer.prompt, output_ids=answer.output_ids, text=answer.text)


def _live(
    beside: Beside | None,
    cell: Cell,
    stage: Stage,
    timeline: Timeline,
    stream: StreamRunner,
    start_ns: int,
) -> tuple[AbstractAsyncContextManager[None], AbstractAsyncContextManager[None]]:
    """What a live run watches, and what takes its commands; of another run nothing."""
    if beside is None:
        return nullcontext(), nullcontext()
    do = in_drill(stage, timeline, stream, start_ns)
    if cell.control is not None:
        do = refuse("this cell is the drill's control: it must fail by its own timeline")
    return beside.watching(), beside.serving(do)


def _content(settings: SiteSettings) -> tuple[Any, ...]:
    """All that an answer depends on beside its prompt."""
    return (
        settings.model,
        settings.content,
        settings.seed,
        settings.layer_groups,
        settings.max_tokens,
        settings.dtype,
    )
