"""The timeline: each event waits for its moment, happens, is seen, and is taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from geokv.clock import now_ns, wait_until_ns
from geokv.coordinator.drill.ends import Ends
from geokv.coordinator.drill.moments import Moments
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.faults import Evidence, Fault, fault_class
from geokv.errors import ConfigError, GeokvError
from geokv.scenario.timeline import Event
from geokv.units import NS_PER_S


def faults_of(stage: Stage) -> list[Fault[Any]]:
    """One fault per event of the stage's scenario, in its order.

    Raises:
        ConfigError: a kind of fault that nothing here can make.
    """
    return [fault_class(event.fault)(event, stage) for event in stage.scenario.timeline]


def as_written(event: Event) -> dict[str, Any]:
    """An event as a scenario has it, whole; only what promises nothing is left out."""
    return event.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"expect"})


class Timeline:
    """Runs the events of one drill.

    What becomes of a fault is in the history: ``asked``, then ``took-effect`` or
    ``did-not-fire``; ``heal-asked``, then ``healed`` or ``did-not-heal``.

    Faults can be added, and healed before their time, while it runs.
    """

    def __init__(self, stage: Stage, moments: Moments, faults: Sequence[Fault[Any]]) -> None:
        self._stage = stage
        self._moments = moments
        self._ends = Ends()
        self._planned = faults
        self._names = [fault.event.title for fault in faults]
        self._held: dict[str, str] = {}
        self._by_hand: set[str] = set()
        self._added: list[asyncio.Task[None]] = []
        self._lasting: set[str] = set()

    @property
    def names(self) -> list[str]:
        """Of all faults so far."""
        return list(self._names)

    async def run(self, start_ns: int) -> None:
        """All events, until each has ended; ``end`` lets no new one begin.

        Args:
            start_ns: when the first request is due.
        """
        await asyncio.gather(*(self._one(fault, start_ns) for fault in self._planned))

    def end(self) -> None:
        """The stream is over: what still waits did not fire, what still lasts is healed."""
        self._ends.end_all()

    # -- by hand -----------------------------------------------------------------

    def add(self, event: Event, start_ns: int) -> None:
        """One event more, which somebody asks for while the drill runs.

        It is in the history like those of the scenario, marked ``by_hand``. What does not end
        by itself but could be taken back waits for ``heal``.

        Raises:
            ConfigError: the stream is over, or nothing here can make the fault.
        """
        if self._ends.over:
            raise ConfigError("the stream of this cell is over")
        fault = fault_class(event.fault)(event, self._stage)
        self._names.append(event.title)
        self._by_hand.add(event.title)
        self._added.append(asyncio.ensure_future(self._one(fault, start_ns)))

    def heal(self, name: str) -> None:
        """Take a fault back now.

        Raises:
            ConfigError: there is none of that name that lasts.
        """
        if name not in self._lasting:
            lasting = ", ".join(sorted(self._lasting)) or "none"
            known = "does not last (any more)" if name in self._names else "is unknown"
            raise ConfigError(f"fault {name} {known}; what lasts: {lasting}")
        self._ends.end(name)

    async def settled(self) -> None:
        """Return when all that was added has ended.

        Raises:
            GeokvError: the history could not be written.
        """
        await asyncio.gather(*self._added)

    def cancel(self) -> None:
        """Leave what was added where it is."""
        for task in self._added:
            task.cancel()

    # -- one event ---------------------------------------------------------------

    async def _one(self, fault: Fault[Any], start_ns: int) -> None:
        event: Event = fault.event
        if not await self._prepared(fault):
            return
        if not await self._before_the_end(event.title, self._moment(event, start_ns)):
            self._fail(fault, "did-not-fire", "the stream ended before its moment")
            return
        self._note(fault, "asked")
        if taken := [claim for claim in sorted(fault.claims) if claim in self._held]:
            by = self._held[taken[0]]
            why = f"{taken[0]} is held by {by}, which has not healed yet"
            self._fail(fault, "did-not-fire", why)
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
        if not event.heals and not self._curable(fault, seen):
            return
        # What was not seen may have happened all the same: it is taken back like the others.
        self._lasting.add(event.title)
        if seen is not None and event.lasts_s is not None and event.heals:
            until_ns = seen.t_ns + round(event.lasts_s * NS_PER_S)
            await self._before_the_end(event.title, wait_until_ns(until_ns))
        elif seen is not None:
            await self._ends.wait(event.title)
        self._lasting.discard(event.title)
        if self._ends.over and not event.heals:
            return
        self._note(fault, "heal-asked")
        if await self._try(fault, fault.heal, "healed", "did-not-heal") is not None:
            self._moments.mark(event.title, "healed")

    def _curable(self, fault: Fault[Any], seen: Evidence | None) -> bool:
        """Whether somebody may take back by hand what was made by hand to stay."""
        return fault.event.title in self._by_hand and seen is not None and fault.can_heal

    async def _prepared(self, fault: Fault[Any]) -> bool:
        try:
            async with asyncio.timeout(fault.deadline_s):
                await fault.prepare()
        except (TimeoutError, GeokvError) as error:
            self._fail(fault, "did-not-fire", str(error) or f"not ready in {fault.deadline_s:g} s")
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

    async def _before_the_end(self, name: str, work: Awaitable[None]) -> bool:
        """Whether ``work`` was done before the stream was over, or what is called ``name`` was
        ended by hand; it is cancelled otherwise."""
        task = asyncio.ensure_future(work)
        over = asyncio.ensure_future(self._ends.wait(name))
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
            self._fail(fault, failed, f"nothing was seen within {fault.deadline_s:g} s")
            return None
        except GeokvError as error:
            self._fail(fault, failed, str(error))
            return None
        self._note(fault, done, seen.t_ns, {"seen": seen.seen, **seen.data})
        return seen

    def _fail(self, fault: Fault[Any], phase: str, why: str) -> None:
        self._note(fault, phase, None, {"said": why})

    def _note(
        self,
        fault: Fault[Any],
        phase: str,
        t_ns: int | None = None,
        evidence: dict[str, Any] | None = None,
    ) -> None:
        event: Event = fault.event
        told = evidence or {}
        by_hand = event.title in self._by_hand
        mark = {"by_hand": as_written(event)} if by_hand else {}
        seen_ns = self._stage.note(
            "fault",
            getattr(event, "site", None) or "",
            t_ns,
            name=event.title,
            kind=event.fault,
            phase=phase,
            target=fault.target,
            evidence=told,
            **mark,
        )
        self._stage.progress(
            "fault",
            name=event.title,
            kind=event.fault,
            target=fault.target,
            phase=phase,
            said=told.get("said", ""),
            seen=told.get("seen", ""),
            seen_ns=seen_ns,
            by_hand=by_hand,
        )
