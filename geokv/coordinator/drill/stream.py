"""The stream: every request is sent when it is due, whatever became of those before it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from geokv.clock import now_ns, wait_until_ns
from geokv.coordinator.client import Question, Reply
from geokv.coordinator.deploy import API_PORT
from geokv.coordinator.drill.client import StreamClient
from geokv.coordinator.drill.moments import Moments
from geokv.coordinator.drill.schedule import Due
from geokv.coordinator.drill.setup import do, drop
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.tracing import block_tokens, prompt_blocks
from geokv.errors import RunError
from geokv.routing.door import Doors
from geokv.routing.policy import Arrival
from geokv.scenario.workload import OpenLoop, Stream
from geokv.site.record import RequestRecord
from geokv.site.settings import Tenant
from geokv.units import NS_PER_S

WAY_S = 0.05
"""Beyond the deadline that sites keep: for the way there and back, and for the client's clock."""
_PATIENCE_S = 1.0
"""How much longer than that a client waits, so that what hangs is seen to hang."""
_RECORD_DEADLINE_S = 1.0
_PREPARE_DEADLINE_S = 60.0
_TOLD = (
    *("status", "ttft_ns", "source", "cached_tokens"),
    *("chunks_remote", "chunks_local", "chunks_disk", "wire_bytes"),
)
"""What a step says of a request, beside what was asked."""


class StreamRunner:
    """Asks what is due and notes what became of it.

    Args:
        clients: site → the load client in its access namespace.
    """

    def __init__(
        self,
        stage: Stage,
        tenants: Sequence[Tenant],
        clients: dict[str, StreamClient],
        moments: Moments,
    ) -> None:
        workload = stage.scenario.workload
        assert isinstance(workload, OpenLoop), "drills are open loop"
        self._stage = stage
        self._deadline_s = workload.deadline
        self._forgets = isinstance(workload, Stream) and workload.cold == "forget"
        self._prefix_tokens = workload.prefix_tokens if isinstance(workload, Stream) else None
        self._tenants = tenants
        self._clients = clients
        self._moments = moments
        routing = stage.scenario.routing
        self._doors = Doors(routing.policy, routing.sites or stage.sites)
        self._block_tokens = block_tokens(stage.scenario)
        self.setup: list[str] = []
        """What was done to sites since the last request; the next one's event takes it."""
        self._stopped = False

    async def prepare(
        self, number: int, tenant: int, site: str, tokens: list[int], max_tokens: int = 1
    ) -> None:
        """Have a provider compute, store and publish one prefix, or one line of a trace.

        Raises:
            RunError: it could not; a drill does not begin with half of what it needs.
        """
        request_id = f"prepare-{site}-{tenant}-{number}"
        question = self._question(request_id, tenant, site, tokens, max_tokens, _PREPARE_DEADLINE_S)
        reply = await self._clients[site].ask(question)
        if reply.error is not None:
            raise RunError(f"site {site} could not prepare prefix {number}: {reply.error}")
        self._stage.note(
            "prepared",
            site,
            request_id=request_id,
            tenant=self._tenants[tenant].name,
            **self._begins(number),
            prompt_tokens=len(tokens),
            sent_ns=reply.sent_ns,
            max_tokens=max_tokens,
            **self._traced(tokens),
        )

    def stop(self) -> None:
        """Send nothing more; what is under way goes on to its end."""
        self._stopped = True

    async def run(self, start_ns: int, due: Sequence[Due]) -> int:
        """Send every request at its time and return when all have ended: how many were sent.

        Raises:
            RunError: a load client ended, or gave no reply.
        """
        asking: list[asyncio.Task[None]] = []
        try:
            for one in due:
                await wait_until_ns(start_ns + one.due_ns)
                if self._stopped:
                    break
                asking.append(asyncio.ensure_future(self._one(one)))
            await asyncio.gather(*asking)
            return len(asking)
        finally:
            for task in asking:
                task.cancel()

    async def _one(self, due: Due) -> None:
        stage, request_id = self._stage, f"r{due.number}"
        tenant, door = self._tenants[due.tenant].name, due.site
        if due.setup:
            await do(stage, due.setup)
            self.setup += due.setup
        site = self._doors.choose(Arrival(due.number, door, tenant, tuple(due.tokens)))
        if self._forgets and stage.is_up(site):
            await drop(stage, site)
            self.setup.append(f"drop {site}")
        deadline_s = self._deadline_s + WAY_S
        sent_ns = now_ns()
        stage.note(
            "request",
            site,
            sent_ns,
            request_id=request_id,
            tenant=tenant,
            prompt=due.prompt,
            due_ns=due.due_ns,
            deadline_ns=sent_ns + round(deadline_s * NS_PER_S),
            prompt_tokens=len(due.tokens),
            **self._begins(due.prefix),
            max_tokens=due.max_tokens,
            **({"probe": due.probe} if due.probe else {}),
            **({"door": door} if door != site else {}),
            **due.more,
            **self._traced(due.tokens),
        )
        self._moments.count_sent()
        question = self._question(
            request_id,
            due.tenant,
            site,
            due.tokens,
            due.max_tokens,
            deadline_s + _PATIENCE_S,
        )
        reply = await self._clients[door].ask(question)
        self._doors.ended(door, site, reply.error is None)
        said: dict[str, Any] = {"status": "unanswered", "ttft_ns": None, "source": "none"}
        if reply.gave_up:
            waited_ns = reply.done_ns - sent_ns
            stage.note("unanswered", site, request_id=request_id, waited_ns=waited_ns)
        else:
            record = await self._record(site, request_id)
            said = _answer(reply, record)
            stage.note("answer", site, request_id=request_id, tenant=tenant, **said)
        self._moments.count_done()
        ttft_ns = said["ttft_ns"]
        stage.progress(
            "request",
            request_id=request_id,
            site=site,
            tenant=tenant,
            error=reply.error,
            warmup=False,
            sent_ns=sent_ns,
            prompt_tokens=len(due.tokens),
            ttft_ms=None if ttft_ns is None else ttft_ns / 1e6,
            **{name: said[name] for name in _TOLD if name in said},
        )

    def _begins(self, prefix: int | None) -> dict[str, Any]:
        """What a prompt has in common with others, where prefixes have numbers."""
        if self._prefix_tokens is None:
            return {}
        return {"prefix": prefix, "prefix_tokens": self._prefix_tokens}

    def _traced(self, tokens: Sequence[int]) -> dict[str, Any]:
        """What a trace needs to know of a request."""
        setup, self.setup = self.setup, []
        size = self._block_tokens
        return {"setup": setup, "block_tokens": size, "blocks": prompt_blocks(tokens, size)}

    async def _record(self, site: str, request_id: str) -> RequestRecord | None:
        """The serving site's word on it; None when that life of it has none."""
        try:
            path = f"/requests/{request_id}"
            data = (await self._stage.control(site).get(path, _RECORD_DEADLINE_S))["record"]
        except RunError as error:
            self._stage.note("no-record", site, request_id=request_id, said=error.message)
            return None
        if data is None:
            return None
        return RequestRecord(**{one.name: data[one.name] for one in fields(RequestRecord)})

    def _question(
        self,
        request_id: str,
        tenant: int,
        site: str,
        tokens: list[int],
        max_tokens: int,
        patience_s: float,
    ) -> Question:
        return Question(
            request_id,
            f"http://{self._stage.lab.address(site)}:{API_PORT}/v1/completions",
            self._tenants[tenant].api_key,
            self._stage.scenario.deployment.model,
            tokens,
            max_tokens,
            patience_s,
        )


def _answer(reply: Reply, record: RequestRecord | None) -> dict[str, Any]:
    """An ``answer`` event: the client's stamps and words, the site's counts."""
    status = "ok" if reply.error is None else "error"
    if reply.status is not None and reply.status != 200:
        status = "refused"
    said: dict[str, Any] = {
        "status": status,
        "error": reply.error or "",
        "text": reply.text,
        "sent_ns": reply.sent_ns,
        "first_ns": reply.first_ns,
        "done_ns": reply.done_ns,
        "ttft_ns": None if reply.first_ns is None else reply.first_ns - reply.sent_ns,
        "output_ids": None,
        "cached_tokens": 0,
        "device_tokens": 0,
        "source": "none",
        "chunks_remote": 0,
        "chunks_by_site": {},
        "chunks_local": 0,
        "chunks_disk": 0,
        "wire_bytes": 0,
        "misses": {},
        "spans": None,
    }
    if record is None:
        return said
    if reply.first_ns is not None and record.prefilled_ns > 0:
        said["spans"] = record.spans_ns(reply.sent_ns, reply.first_ns)
    return said | {
        "output_ids": record.output_ids,
        "cached_tokens": record.cached_tokens,
        "device_tokens": record.device_tokens,
        "source": record.source,
        "chunks_remote": record.chunks_remote,
        "chunks_by_site": record.chunks_by_site,
        "chunks_local": record.chunks_local,
        "chunks_disk": record.chunks_disk,
        "wire_bytes": record.wire_bytes,
        "misses": dict(record.misses),
    }
