"""Another tenant fetches through the cache itself, at a share of the path's rate."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

from geokv.clock import now_ns, wait_until_ns
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.prompts import StreamPrompts
from geokv.errors import FaultError, RunError
from geokv.scenario.timeline import TenantLoad
from geokv.scenario.workload import Stream
from geokv.units import NS_PER_S

_PULL_DEADLINE_S = 5.0
_WINDOW_S = 0.1
_ENOUGH = 0.5
"""Of the share asked for, over one window: fetches yield to others like all TCP."""


class TenantLoadFault(Fault[TenantLoad]):
    """Seen by what the site says it got, and by the counters of the last link on the way."""

    kind = "tenant-load"
    deadline_s = 10.0

    def __init__(self, event: TenantLoad, stage: Stage) -> None:
        super().__init__(event, stage)
        path = stage.lab.plan.path(event.from_, event.to)
        self._link = path.links[-1]
        self._rate_bps = event.share * path.payload_rate_bps
        self._pulls: asyncio.Task[None] | None = None
        self._got_bytes = self._done = self._left_out = self._failed = 0
        self._misses: Counter[str] = Counter()
        self._since_ns = 0

    @property
    def target(self) -> str:
        return f"{self.event.from_}-to-{self.event.to}"

    async def inject(self) -> Evidence:
        texts = self._texts()
        for tokens in texts:  # all are as long; others may just have had the first
            came_bytes, chunks = await self._pull(tokens)
            if chunks:
                break
        else:
            raise FaultError(
                f"nothing of {self.event.tenant} comes from {self.event.from_} to {self.event.to}"
            )
        chunk_tokens = self.stage.scenario.deployment.at(self.event.to).chunk_tokens
        each_bytes = came_bytes // chunks * (len(texts[0]) // chunk_tokens)
        self._misses.clear()
        self._since_ns = now_ns()
        self._pulls = asyncio.create_task(self._go_on(texts, each_bytes), name="tenant load")
        while True:
            got, line = self._got_bytes, self._line_bytes()
            start_ns = now_ns()
            await asyncio.sleep(_WINDOW_S)
            per_s = 8 * NS_PER_S / (now_ns() - start_ns)
            got_bps, line_bps = (
                (after - before) * per_s
                for after, before in ((self._got_bytes, got), (self._line_bytes(), line))
            )
            if min(got_bps, line_bps) >= _ENOUGH * self._rate_bps:
                break
        data = {
            "asked_bps": round(self._rate_bps),
            "got_bps": round(got_bps),
            "line_bps": round(line_bps),
            "bytes_each": each_bytes,
        }
        said = f"{self.event.tenant} fetches {got_bps / self._rate_bps:.2f} of what was asked"
        return Evidence(self._since_ns, said, data)

    async def heal(self) -> Evidence:
        if self._pulls is None:
            return Evidence(now_ns(), "nothing was fetched", {})
        self._pulls.cancel()
        await asyncio.gather(self._pulls, return_exceptions=True)
        ended_ns = now_ns()
        lasted_s = (ended_ns - self._since_ns) / NS_PER_S
        data = {
            "moved_bytes": self._got_bytes,
            "got_bps": round(self._got_bytes * 8 / lasted_s),
            "asked_bps": round(self._rate_bps),
            "fetches": self._done,
            "failed": self._failed,
            "left_out": self._left_out,
            "misses": dict(sorted(self._misses.items())),
        }
        said = f"{self.event.tenant} has fetched {self._got_bytes} bytes in {self._done} fetches"
        return Evidence(ended_ns, said, data)

    def _texts(self) -> list[list[int]]:
        """Prefixes of that tenant that its provider has computed.

        Raises:
            FaultError: there are none.
        """
        workload, event = self.stage.scenario.workload, self.event
        assert isinstance(workload, Stream), "drills are streams"
        number = int(event.tenant.rpartition("-")[2])
        if event.from_ not in workload.providers or number >= workload.tenants:
            raise FaultError(
                f"{event.from_} has computed nothing of {event.tenant}",
                "name a provider, and raise workload.tenants",
            )
        prompts = StreamPrompts(workload, self.stage.scenario.seed)
        first = number * workload.prefixes if workload.texts == "own" else 0
        return [prompts.preparing(0, first + i) for i in range(workload.prefixes)]

    async def _go_on(self, texts: list[list[int]], each_bytes: int) -> None:
        """One prefix after another at its time, whichever others are still on their way. One that
        is on its way is not asked for again: two fetches of it would come as one."""
        each_ns = each_bytes * 8 * NS_PER_S / self._rate_bps
        running: dict[int, asyncio.Task[None]] = {}
        try:
            for number in itertools.count():
                await wait_until_ns(self._since_ns + round(number * each_ns))
                order = [(number + place) % len(texts) for place in range(len(texts))]
                idle = [text for text in order if text not in running or running[text].done()]
                if not idle:
                    self._left_out += 1
                    continue
                running[idle[0]] = asyncio.create_task(self._one(texts[idle[0]]))
        finally:
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)

    async def _one(self, tokens: list[int]) -> None:
        try:
            self._got_bytes += (await self._pull(tokens))[0]
            self._done += 1
        except RunError:  # the site is down or frozen, which is another fault's doing
            self._failed += 1

    async def _pull(self, tokens: list[int]) -> tuple[int, int]:
        """Bytes and chunks of one prefix that came from the site that is to send them."""
        pulled = await self.stage.control(self.event.to).patient(
            "/pull",
            _PULL_DEADLINE_S,
            tenant=self.event.tenant,
            tokens=tokens,
            name=f"load-{self.event.title}",
            source=self.event.from_,
        )
        self._misses += Counter(pulled["misses"])
        ours, whole = pulled["sites"].get(self.event.from_, 0), sum(pulled["sites"].values())
        return (pulled["wire_bytes"] * ours // whole if whole else 0), ours

    def _line_bytes(self) -> int:
        """What the last link on the way has carried towards the asker."""
        end = 0 if self.stage.lab.link_plan(self._link).b == self.event.to else 1
        return self.stage.lab.qdiscs(self._link)[end].sent_bytes
