"""A drill as it went, for pictures: what happened when, in ms since the first request was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from geokv.measure.checker.exchanges import Exchange
from geokv.measure.checker.history import Event, History, load_histories
from geokv.measure.drill.fates import fates
from geokv.measure.drill.faults import faults_seen
from geokv.measure.rounded import to_ms

_Ms = Callable[[object], float | None]
"""Of a stamp in ns."""


@dataclass(frozen=True)
class Asked:
    """One request. ``ttft_ms`` is None when it had no answer; ``ended_ms`` when it never ended."""

    request_id: str
    site: str
    sent_ms: float
    ttft_ms: float | None
    ended_ms: float | None
    fate: str


@dataclass(frozen=True)
class Fault:
    """One event of the timeline. What was not seen has no time."""

    name: str
    kind: str
    target: str
    asked_ms: float | None
    took_ms: float | None
    healed_ms: float | None


@dataclass(frozen=True)
class Down:
    """From when to when ``site`` held ``peer`` for down; or, without a peer, was itself away or
    kept back from what it might no longer use. ``to_ms`` is None when that never ended."""

    site: str
    peer: str
    why: str
    from_ms: float
    to_ms: float | None


@dataclass(frozen=True)
class Missed:
    """Chunks that one site missed for one cause in one millisecond."""

    site: str
    cause: str
    t_ms: int
    count: int


@dataclass(frozen=True)
class Story:
    """``end_ms``: when the last request had ended, or its client had given up."""

    cell: int
    label: str
    control: bool
    end_ms: float
    asked: list[Asked]
    faults: list[Fault]
    downs: list[Down]
    misses: list[Missed]


def stories(run_dir: Path) -> list[Story]:
    """One of every cell of a drill that asked anything.

    Raises:
        RunError: no history, or a broken one.
    """
    return [tell(history) for history in load_histories(run_dir) if history.has("request")]


def tell(history: History) -> Story:
    """The story of one cell; raises StopIteration for one without a request."""
    origin_ns = int(next(history.of("request"))["t_ns"])

    def ms(t_ns: object) -> float | None:
        return to_ms(t_ns - origin_ns) if isinstance(t_ns, int) else None

    asked = [_asked(one, fate, ms) for one, fate in fates(history).by_request]
    ends = [ms(event["t_ns"]) for event in history.of("stream-end", "unanswered")]
    times = [one.ended_ms or one.sent_ms for one in asked] + [end for end in ends if end]
    begun = next(history.of("drill-begin"), {})
    return Story(
        cell=history.cell or 0,
        label=history.label,
        control=bool(begun.get("control")),
        end_ms=max(times),
        asked=asked,
        faults=[
            Fault(
                one.name,
                one.kind,
                one.target,
                ms(one.events[0]["t_ns"]) if one.events[0]["phase"] == "asked" else None,
                ms(one.took_ns),
                ms(one.healed_ns),
            )
            for one in faults_seen(history)
        ],
        downs=_downs(history, ms, max(times)),
        misses=_misses(history, origin_ns),
    )


def _asked(one: Exchange, fate: str, ms: _Ms) -> Asked:
    answer = one.answer
    return Asked(
        one.request_id,
        one.site,
        ms(one.sent_ns) or 0.0,
        to_ms(one.ttft_ns),
        None if answer is None else ms(answer.get("done_ns")),
        fate,
    )


_ENDS = {"peer-up": "peer-down", "unfenced": "fenced", "ready": "killed"}


def _downs(history: History, ms: _Ms, end_ms: float) -> list[Down]:
    """Spans between a beginning and its end, in the order of their beginnings; what began after
    the stream had ended is none."""
    open_: dict[tuple[str, str, str], Event] = {}
    found = []
    for event in history.of("peer-down", "peer-up", "fenced", "unfenced", "life"):
        what = str(event.get("phase")) if event["op"] == "life" else str(event["op"])
        begins = _ENDS.get(what, what)
        key = (event["site"], str(event.get("peer") or ""), begins)
        if what in _ENDS:
            first = open_.pop(key, None)
            if first is not None:
                found.append((first, key, ms(event["t_ns"])))
        elif what in _ENDS.values():
            open_.setdefault(key, event)
    found += [(first, key, None) for key, first in open_.items()]
    spans = [
        Down(site, peer, what, from_ms, to_ms)
        for first, (site, peer, what), to_ms in found
        if (from_ms := ms(first["t_ns"])) is not None and from_ms <= end_ms
    ]
    return sorted(spans, key=lambda span: (span.from_ms, span.site, span.peer))


def _misses(history: History, origin_ns: int) -> list[Missed]:
    counts: Counter[tuple[int, str, str]] = Counter()
    for event in history.of("miss"):
        t_ms = (int(event["t_ns"]) - origin_ns) // 1_000_000
        counts[t_ms, event["site"], str(event.get("cause") or "")] += 1
    return [Missed(site, cause, t_ms, n) for (t_ms, site, cause), n in sorted(counts.items())]
