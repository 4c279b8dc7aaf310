"""What became of every fetch and of every request: one fate each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from geokv.measure.checker import answered_wrongly, corrupt
from geokv.measure.checker.exchanges import Exchange, exchanges
from geokv.measure.checker.history import Event, History

FETCH_FATES = ("served", "unused", "retried", "recomputed", "failed", "wrong")
"""``served``: came, and an engine used it. ``unused``: came when its prefix had already ended, and
was kept. ``retried``: failed, and came another way. ``recomputed``: failed, and its request was
answered without it. ``failed``: its request, or its site, ended with it. ``wrong``: came, and what
was used is not what had been computed."""
REQUEST_FATES = ("remote", "local", "recomputed", "refused", "failed", "wrong", "unanswered")
"""By the farthest place that gave something; ``refused`` and ``failed`` said why."""


@dataclass(frozen=True)
class Fates:
    """What became of every fetch and every request: counts by fate, and each with its own."""

    fetches: dict[str, int]
    requests: dict[str, int]
    by_fetch: list[tuple[Event, str]]
    by_request: list[tuple[Exchange, str]]


def fates(history: History) -> Fates:
    """Go through a history once more, now knowing what was wrong."""
    wrong_uses = {id(offence[1][-1]) for offence in corrupt.compare(history)[0]}
    wrong_answers = {
        offence[1][0]["request_id"] for offence in answered_wrongly.compare(history)[0]
    }
    asked = exchanges(history)
    by_request = [(one, _request(one, wrong_answers)) for one in asked]
    ended = {one.request_id: fate for one, fate in by_request}
    by_fetch = _fetches(history, wrong_uses, ended)
    return Fates(
        _counted(FETCH_FATES, [fate for _, fate in by_fetch]),
        _counted(REQUEST_FATES, [fate for _, fate in by_request]),
        by_fetch,
        by_request,
    )


def _request(one: Exchange, wrong: set[str]) -> str:
    answer = one.answer
    if answer is None:
        return "unanswered"
    if one.request_id in wrong:
        return "wrong"
    if answer["status"] != "ok":
        return "refused" if answer["status"] == "refused" else "failed"
    if one.chunks_remote:
        return "remote"
    return "local" if one.cached_tokens else "recomputed"


def _fetches(
    history: History, wrong_uses: set[int], ended: dict[str, str]
) -> list[tuple[Event, str]]:
    """What happens next to the same chunk at the same site says what became of it."""
    lines: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in history.of("fetch", "use", "miss"):
        if "key" in event and event.get("source") != "device":
            lines[event["site"], event["key"]].append(event)
    killed: dict[str, list[int]] = defaultdict(list)
    for event in history.of("life"):
        if event.get("phase") == "killed":
            killed[event["site"]].append(int(event["t_ns"]))
    found: dict[int, str] = {}
    for (site, _), line in lines.items():
        for place, event in enumerate(line):
            if event["op"] != "fetch":
                continue
            rest = line[place + 1 :]
            if event.get("cause"):
                found[id(event)] = _lost(event, rest, ended, killed[site])
            else:
                found[id(event)] = _came(event, rest, wrong_uses, ended)
    return [(event, found[id(event)]) for event in history.of("fetch")]


def _came(fetch: Event, rest: Sequence[Event], wrong: set[int], ended: dict[str, str]) -> str:
    used = False
    for event in rest:
        if event["op"] == "fetch" and not event.get("cause"):
            break
        if event["op"] == "use":
            used = True
            if id(event) in wrong or ended.get(event.get("request_id", "")) == "wrong":
                return "wrong"
    return "served" if used else "unused"


def _lost(fetch: Event, rest: Sequence[Event], ended: dict[str, str], killed: list[int]) -> str:
    following = rest[0] if rest else None
    end_ns = next((t_ns for t_ns in killed if t_ns >= fetch["t_ns"]), None)
    if end_ns is not None and (following is None or following["t_ns"] > end_ns):
        return "failed"
    if following is None:
        # Nobody waited for it any more: the prefix had ended before it.
        return "recomputed"
    if following["op"] in ("use", "fetch") and fetch["cause"] != "cancelled":
        return "retried"
    fate = ended.get(following.get("request_id", ""), "")
    return "failed" if fate in ("failed", "refused", "unanswered") else "recomputed"


def _counted(names: Sequence[str], seen: Sequence[str]) -> dict[str, int]:
    counts = Counter(seen)
    return {name: counts[name] for name in names}
