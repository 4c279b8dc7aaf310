"""Faults as they were seen from outside: when each took effect, and when it was over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geokv.measure.checker.exchanges import Exchange
from geokv.measure.checker.history import Event, History


@dataclass
class FaultSeen:
    """One event of the timeline. Stamps are of the evidence, not of the asking."""

    name: str
    kind: str
    target: str
    events: list[Event]

    def _phase(self, phase: str) -> Event | None:
        return next((event for event in self.events if event["phase"] == phase), None)

    @property
    def took_ns(self) -> int | None:
        """When it was seen to have taken effect; None if it was not."""
        event = self._phase("took-effect")
        return int(event["t_ns"]) if event else None

    @property
    def healed_ns(self) -> int | None:
        """When it was seen to have healed; None if it was not."""
        event = self._phase("healed")
        return int(event["t_ns"]) if event else None

    def felt_by(self, one: Exchange) -> bool:
        """Whether a request waited for its first token, or its error, while it lasted."""
        if self.took_ns is None or (self.healed_ns is not None and one.sent_ns >= self.healed_ns):
            return False
        ended_ns = one.first_ns
        if ended_ns is None and one.answer is not None:
            ended_ns = int(one.answer["done_ns"])
        return ended_ns is None or ended_ns > self.took_ns

    @property
    def by_hand(self) -> dict[str, Any] | None:
        """The event as it was asked for, where somebody did while the drill ran."""
        asked: dict[str, Any] | None = self.events[0].get("by_hand")
        return asked

    @property
    def problem(self) -> str:
        """Why the drill cannot be judged by it; empty when it did what it should."""
        for phase in ("did-not-fire", "did-not-heal"):
            if (event := self._phase(phase)) is not None:
                return f"{phase.replace('-', ' ')}: {shown(event)}"
        if self.took_ns is None:
            return "was never seen to take effect"
        if self._phase("heal-asked") is not None and self.healed_ns is None:
            return "was never seen to have healed"
        return ""

    @property
    def evidence(self) -> dict[str, str]:
        """Phase → what was seen."""
        return {
            event["phase"]: shown(event)
            for event in self.events
            if event["phase"] not in ("asked", "heal-asked")
        }


def faults_seen(history: History) -> list[FaultSeen]:
    """Of a drill, in the order in which they were asked for."""
    found: dict[str, FaultSeen] = {}
    for event in history.of("fault"):
        name = str(event["name"])
        one = found.get(name)
        if one is None:
            one = FaultSeen(name, str(event.get("kind", "")), str(event.get("target", "")), [])
            found[name] = one
        one.events.append(event)
    return list(found.values())


def shown(event: Event) -> str:
    """The sentence of an event's evidence."""
    evidence: dict[str, Any] = event.get("evidence") or {}
    return str(evidence.get("seen") or evidence.get("said") or "nothing was said of it")
