"""Histories of a cache that keeps its promises have nothing wrong in them; each with one event
changed has, and the checker whose line that is says so."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from honest_cache import PREFIXES, SITES, TENANTS, HonestCache, Step
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from geokv.measure.checker import CHECKERS, ON_REQUEST, Event, History, check_all
from geokv.measure.checker.exchanges import exchanges
from geokv.measure.checker.finding import Finding
from geokv.measure.drill.fates import fates
from geokv.measure.drill.soundness import examine

SITE = st.sampled_from(SITES)
TENANT = st.integers(0, len(TENANTS) - 1)
ASK = st.tuples(st.just("ask"), SITE, TENANT, st.integers(0, PREFIXES - 1))
STEP: st.SearchStrategy[Step] = st.one_of(
    ASK,
    ASK,
    ASK,
    st.tuples(st.sampled_from(["kill", "restart", "drop", "sever"]), SITE),
    st.tuples(st.just("evict"), SITE, st.integers(0, 7)),
    st.tuples(st.just("purge"), TENANT),
)
STEPS = st.lists(STEP, min_size=1, max_size=40)
# Both tenants, a copy of a copy, a purge and what is kept by then: whatever a mutation needs.
RICH: list[Step] = [
    ("ask", "a", 0, 0), ("ask", "a", 1, 0), ("ask", "b", 0, 0), ("ask", "b", 1, 0),
    ("evict", "c", 0), ("ask", "c", 0, 0), ("ask", "c", 0, 0), ("sever", "b"),
    ("ask", "b", 0, 1), ("ask", "b", 0, 1), ("sever", "b"), ("kill", "c"), ("restart", "c"),
    ("ask", "c", 0, 0), ("purge", 1), ("ask", "b", 1, 0), ("ask", "c", 1, 0),
]  # fmt: skip


@given(STEPS)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_is_found_in_an_honest_history(steps):
    history = HonestCache().run(steps)
    wrong = [line for line in [*check_all(history), *examine(history)] if line.ok is False]
    assert wrong == []
    found = fates(history)
    assert sum(found.fetches.values()) == history.count("fetch")
    assert sum(found.requests.values()) == history.count("request")
    assert found.fetches["wrong"] == found.requests["wrong"] == 0


def test_nothing_is_open_in_a_rich_one():
    history = HonestCache().run(RICH)
    lines = [*check_all(history), *examine(history)]
    assert [(line.name, line.said) for line in lines if line.ok is not True] == []


# -- one thing wrong ------------------------------------------------------------------------

Mutate = Callable[[list[Event], Callable[[int], int]], bool]
"""Changes one event in place, chosen by a function from a count to an index; False if there is
none that it could change."""


def one(events: list[Event], pick: Callable[[int], int], *ops: str, **like: object) -> Event | None:
    fit = [
        event
        for event in events
        if event["op"] in ops and all(event.get(name) == value for name, value in like.items())
    ]
    return fit[pick(len(fit))] if fit else None


def changed(*ops: str, like: dict[str, object] | None = None, **change: object) -> Mutate:
    """Sets fields of one event of ``ops``; a function is given the event."""

    def mutate(events: list[Event], pick: Callable[[int], int]) -> bool:
        event = one(events, pick, *ops, **(like or {}))
        if event is None:
            return False
        before = dict(event)
        for name, value in change.items():
            event[name] = value(event) if callable(value) else value
        return event != before

    return mutate


def removed(*ops: str, **like: object) -> Mutate:
    def mutate(events: list[Event], pick: Callable[[int], int]) -> bool:
        event = one(events, pick, *ops, **like)
        if event is None:
            return False
        events[:] = [other for other in events if other is not event]
        return True

    return mutate


def never_whole(events: list[Event], pick: Callable[[int], int]) -> bool:
    """A use whose chunk was never said to be whole at its site."""
    event = one(events, pick, "use", "serve")
    if event is None:
        return False
    where = (event["site"], event["key"])
    fills = ("store", "fetch")
    events[:] = [e for e in events if not (e["op"] in fills and (e["site"], e["key"]) == where)]
    return True


def same_place(events: list[Event], pick: Callable[[int], int]) -> bool:
    """A chunk is put where another lies."""
    lying: dict[tuple[str, str], Event] = {}
    chances: list[tuple[Event, Event]] = []
    for event in events:
        where = (event["site"], event.get("key", ""))
        if event["op"] in ("store", "fetch") and not event.get("cause"):
            chances += [(event, old) for (site, _), old in lying.items() if site == event["site"]]
            lying[where] = event
        elif event["op"] in ("evict", "drop"):
            lying.pop(where, None)
        elif event["op"] == "life" and event["phase"] == "killed":
            lying = {key: old for key, old in lying.items() if key[0] != event["site"]}
    if not chances:
        return False
    event, old = chances[pick(len(chances))]
    event["place"] = old["place"]
    return True


def survives_purge(events: list[Event], pick: Callable[[int], int]) -> bool:
    """A purged copy is not dropped, and is used again when the purge is over."""
    chances = []
    for place, event in enumerate(events):
        if event["op"] == "purge" and event["phase"] == "acked":
            asked = next(e for e in events if e.get("purge_id") == event["purge_id"])
            gone = [e for e in events[events.index(asked) : place] if e["op"] == "drop"]
            chances += [(place, event, drop) for drop in gone]
    if not chances:
        return False
    place, acked, drop = chances[pick(len(chances))]
    late = {"t_ns": acked["t_ns"] + 1, "site": drop["site"], "op": "use", "key": drop["key"],
            "source": "dram", "request_id": "", "tenant": acked["tenant"]}  # fmt: skip
    events.insert(place + 1, late)
    events.remove(drop)
    return True


def used_again(events: list[Event], pick: Callable[[int], int]) -> bool:
    """A request that comes when a copy has gone is given it all the same."""
    chances = [
        (place, event, use)
        for place, event in enumerate(events)
        if event["op"] in ("evict", "drop")
        for use in events[:place]
        if use["op"] == "use" and (use["site"], use["key"]) == (event["site"], event["key"])
    ]
    if not chances:
        return False
    place, gone, use = chances[pick(len(chances))]
    late = {**use, "source": "dram", "request_id": "late"}
    plan = {"site": use["site"], "op": "lookup", "key": use["key"], "request_id": "late"}
    events[place + 1 : place + 1] = [
        {**plan, "t_ns": gone["t_ns"] + 2, "lookup_ns": 1},
        {**late, "t_ns": gone["t_ns"] + 3},
    ]
    return True


def told_of(event: Event) -> dict[str, list[str]]:
    return {**event["keys"], "never-stored": ["a"]}


def forgotten(event: Event) -> dict[str, list[str]]:
    return dict(list(event["keys"].items())[1:])


def pool(**change: int) -> Callable[[Event], dict[str, int]]:
    return lambda event: {**event["dram"], **change}


OK = {"status": "ok"}
MUTATIONS: list[tuple[str, Mutate]] = [
    ("stale", changed("use", generation=lambda e: e["generation"] + 100)),
    ("stale", changed("use", incarnation=lambda e: e["incarnation"] + 100)),
    ("stale", changed("fetch", like={"cause": ""}, incarnation=lambda e: e["incarnation"] - 1)),
    ("stale", used_again),
    ("foreign", changed("use", tenant=lambda e: "t1" if e["tenant"] == "t0" else "t0")),
    ("foreign", changed("use", request_id="r0", like={"tenant": "t1"})),
    ("corrupt", changed("use", checksums=lambda e: [*e["checksums"][1:], "other"])),
    ("corrupt", changed("fetch", like={"cause": ""}, checksums=["x", "y"])),
    ("half-written", never_whole),
    ("half-written", changed("serve", sent_bytes=63)),
    ("half-written", changed("use", checksums=lambda e: e["checksums"][:1])),
    ("leaked", changed("pools", dram=pool(pinned=1))),
    ("leaked", changed("pools", dram=pool(total=9))),
    ("leaked", changed("pools", dram=pool(leases=1))),
    ("doubly-owned", same_place),
    ("served-after-purge", survives_purge),
    ("answered-wrongly", changed("answer", like=OK, output_ids=[0])),
    ("answered-wrongly", changed("answer", like=OK, output_ids=lambda e: e["output_ids"][:-1])),
    ("never-answered", removed("answer")),
    ("never-answered", changed("answer", done_ns=lambda e: e["done_ns"] + 10**12)),
    ("never-answered", changed("answer", status="error", error="")),
    ("directory-converges", changed("directory", keys=told_of)),
    ("directory-converges", changed("directory", keys=forgotten)),
    ("integrity", changed("integrity", result="free + cached is not 8")),
    ("integrity", changed("quiesced", ok=False)),
]  # fmt: skip


def test_every_line_is_broken_by_some_mutation():
    # One request says nothing of a law: what is judged on request is tried by hand.
    assert {line for line, _ in MUTATIONS} == set(CHECKERS) - set(ON_REQUEST)


@pytest.mark.parametrize(("line", "mutate"), MUTATIONS)
@given(STEPS, st.integers(0, 10**6))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_one_changed_event_is_found(line, mutate, steps, number):
    # What is rich enough comes first, so that most draws have something to change.
    events = copy.deepcopy(list(HonestCache().run([*RICH, *steps]).events))
    assume(mutate(events, lambda count: number % count))
    finding = CHECKERS[line](History(events, 0))
    assert finding.ok is False, finding.said
    again = CHECKERS[line](History(finding.excerpt))
    assert again.ok is False and again.excerpt == finding.excerpt


@pytest.mark.parametrize(
    ("said", "mutate"),
    [
        ("was answered 2 times", lambda events: events.append(dict(answer_of(events)))),
        ("which nobody asked", lambda events: answer_of(events).update(request_id="r999")),
        ("were handed over", lambda events: answer_of(events).update(chunks_remote=7)),
        ("which never sent it", lambda events: events.remove(first(events, "serve"))),
    ],
)
def test_books_that_do_not_close_are_found(said, mutate):
    events = copy.deepcopy(list(HonestCache().run(RICH).events))
    mutate(events)
    finding = judged(events)
    assert finding.ok is False and said in finding.said


def test_a_site_that_ends_after_its_answer_is_taken_at_its_noted_word():
    """Nobody can ask it any more what it gave; what it had handed over is in the history."""
    events = copy.deepcopy(list(HonestCache().run(RICH).events))
    one = next(one for one in exchanges(History(events, 0)) if one.chunks_remote)
    name, had = one.request_id, one.chunks_remote
    answer = next(e for e in events if e["op"] == "answer" and e["request_id"] == name)
    answer.update(chunks_remote=0, cached_tokens=0, source="none")
    assert not judged(events).ok
    said = {"op": "no-record", "said": "connection refused"}
    events.insert(events.index(answer), {**answer, **said})
    assert judged(events).ok
    again = next(one for one in exchanges(History(events, 0)) if one.request_id == name)
    assert again.chunks_remote == had and not again.recorded


def judged(events: list[Event]) -> Finding:
    return next(f for f in examine(History(events, 0)) if f.name == "accounted")


def first(events: list[Event], op: str) -> Event:
    return next(event for event in events if event["op"] == op)


def answer_of(events: list[Event]) -> Event:
    return first(events, "answer")
