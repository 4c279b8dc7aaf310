"""The timeline: each event waits for its moment, happens, is seen, and is taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from geokv.clock import now_ns, wait_until_ns
from geokv.coordinator.drill.moments import Moments
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.faults import Evidence, Fault, fault_class
from geokv.errors import GeokvError
from geokv.scenario.timeline import Event
from geokv.units import NS_PER_S


def faults_of(stage: Stage) -> list[Fault[Any]]:
    """One fault per event of the stage's scenario, in its order.

    Raises:
        ConfigError: a kind of fault that nothing here can make.
    """
    return [fault_class(event.fault)(event, stage) for event in stage.scenario.timeline]


class Timeline:
    """Runs the events of one drill.

    What becomes of a fault is in the history: ``asked``, then ``took-effect`` or
    ``did-not-fire``; ``heal-asked``, then ``healed`` or ``did-not-heal``.
    """

    def __init__(self, stage: Stage, moments: Moments, faults: Sequence[Fault[Any]]) -> None:
        self._stage = stage
        self._moments = moments
        self._over = asyncio.Event()
        self._faults = faults
        self._held: dict[str, str] = {}

    async def run(self, start_ns: int) -> None:
        """All events, until each has ended; ``end`` lets no new one begin.

        Args:
            start_ns: when the first request is due.
        """
        await asyncio.gather(*(self._one(fault, start_ns) for fault in self._faults))

    def end(self) -> None:
        """The stream is over: what still waits did not fire, what still lasts is healed."""
        self._over.set()

    async def _one(self, fault: Fault[Any], start_ns: int) -> None:
        event: Event = fault.event
        if not await self._prepared(fault):
            return
        if not await self._before_the_end(self._moment(event, start_ns)):
            self._note(fault, "did-not-fire", None, {"said": "the stream ended before its moment"})
            return
        self._note(fault, "asked")
        if taken := [claim for claim in sorted(fault.claims) if claim in self._held]:
            by = self._held[taken[0]]
            said = f"did not fire: {taken[0]} is held by {by}, which has not healed yet"
            self._note(fault, "did-not-fire", None, {"said": said})
            return
        self._held |= dict.fromkeys(fault.claims, event.title)
        try:
            await self._happens(fault)
        finally:
            for claim in fault.claims:
                self._held.pop(claim, None)

    async def _happens(self, fault: Fault[Any]) -> None:
        event: Event = fault.event
        seen = await self._try(fault, fault.inject, "took-effect", "did-not-fire")
        if seen is not None:
            self._moments.mark(event.title, "took_effect")
        if not event.heals:
            return
        # What was not seen may have happened all the same: it is taken back like the others.
        if seen is not None and event.lasts_s is not None:
            until_ns = seen.t_ns + round(event.lasts_s * NS_PER_S)
            await self._before_the_end(wait_until_ns(until_ns))
        elif seen is not None:
            await self._over.wait()
        self._note(fault, "heal-asked")
        if await self._try(fault, fault.heal, "healed", "did-not-heal") is not None:
            self._moments.mark(event.title, "healed")

    async def _prepared(self, fault: Fault[Any]) -> bool:
        try:
            async with asyncio.timeout(fault.deadline_s):
                await fault.prepare()
        except (TimeoutError, GeokvError) as error:
            self._note(fault, "did-not-fire", None, {"said": f"did not fire: {error}"})
            return False
        return True

    async def _moment(self, event: Event, start_ns: int) -> None:
        if event.condition is None:
            assert event.at is not None, "one of both is given"
            await wait_until_ns(start_ns + round(event.at * NS_PER_S))
            return
        await self._moments.reached(event.condition)
        if event.after:
            await wait_until_ns(now_ns() + round(event.after * NS_PER_S))

    async def _before_the_end(self, work: Awaitable[None]) -> bool:
        """Whether ``work`` was done before the stream was over; it is cancelled otherwise."""
        task = asyncio.ensure_future(work)
        over = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait((task, over), return_when=asyncio.FIRST_COMPLETED)
            return task.done()
        finally:
            for one in (task, over):
                one.cancel()
            await asyncio.gather(task, over, return_exceptions=True)

    async def _try(
        self, fault: Fault[Any], act: Callable[[], Awaitable[Evidence]], done: str, failed: str
    ) -> Evidence | None:
        try:
            async with asyncio.timeout(fault.deadline_s):
                seen = await act()
        except TimeoutError:
            said = f"{failed.replace('-', ' ')}: nothing was seen within {fault.deadline_s:g} s"
            self._note(fault, failed, None, {"said": said})
            return None
        except GeokvError as error:
            self._note(fault, failed, None, {"said": str(error)})
            return None
        self._note(fault, done, seen.t_ns, {"seen": seen.seen, **seen.data})
        return seen

    def _note(
        self,
        fault: Fault[Any],
        phase: str,
        t_ns: int | None = None,
        evidence: dict[str, Any] | None = None,
    ) -> None:
        event: Event = fault.event
        self._stage.note(
            "fault",
            getattr(event, "site", None) or "",
            t_ns,
            name=event.title,
            kind=event.fault,
            phase=phase,
            target=fault.target,
            evidence=evidence or {},
        )
        said = (evidence or {}).get("said", "")
        self._stage.progress("fault", name=event.title, phase=phase, said=said)
