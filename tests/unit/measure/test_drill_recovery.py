"""What counts as a sign of a fault, as another way round it, and as being back."""

from __future__ import annotations

from typing import Any

import pytest
from histories import MS, answer, ev, fault, fetch, history, life, lost, request, serve

from geokv.measure.checker import Event
from geokv.measure.drill.fates import fates
from geokv.measure.drill.faults import faults_seen
from geokv.measure.drill.recovery import WINDOW, Recovery, recoveries
from geokv.measure.drill.soundness import accounted

TOOK_MS = 100
HEALED_MS = 300


def recovery(*events: Event, healed: bool = True) -> Recovery:
    """Of a cut from 100 to 300 ms."""
    seen = [fault(TOOK_MS, "took-effect")] + ([fault(HEALED_MS, "healed")] if healed else [])
    whole = history(*seen, *events)
    (one,) = recoveries(whole, fates(whole), faults_seen(whole))
    return one


def asked(t_ms: float, ttft_ms: int = 10, hit: bool = True, **fields: Any) -> list[Event]:
    """A request whose first token comes ``ttft_ms`` later; its answer ends with it."""
    name = f"r{t_ms}"
    first_ns = round((t_ms + ttft_ms) * MS)
    more = {"first_ns": first_ns, "ttft_ns": ttft_ms * MS, "cached_tokens": 32 * hit, **fields}
    return [request(t_ms, name), answer(t_ms + ttft_ms, name, **more)]


def miss(t_ms: float, cause: str) -> Event:
    return ev(t_ms, "miss", "b", key="k1", cause=cause, request_id="r1")


@pytest.mark.parametrize(
    "sign",
    [
        lost(150, "timeout"), miss(150, "corrupt"), miss(150, "directory"),
        ev(150, "peer-down", "b", peer="a", cause="silent"), ev(150, "fenced", "b", why="bound"),
        ev(150, "gap", "a", expected=3, got=5), ev(150, "disk-down", "b", reason="full"),
    ],
    ids=lambda event: f"{event['op']} {event.get('cause', '')}",
)  # fmt: skip
def test_signs_of_a_fault(sign):
    found = recovery(lost(99, "timeout"), sign).detected
    assert found.ns == 50 * MS and sign["op"] in found.said


@pytest.mark.parametrize(
    "event",
    [
        fetch(150), lost(150, "cancelled"), miss(150, "absent"), miss(150, "full"),
        serve(150, cause="closed"), lost(99, "timeout"),
    ],
    ids=lambda event: f"{event['op']} {event.get('cause', '')} {event['t_ns']}",
)  # fmt: skip
def test_what_happens_without_a_fault_is_no_sign(event):
    found = recovery(event).detected
    assert found.ns is None and not found.unknown


def test_another_way_is_a_fetch_after_detection_and_before_healing():
    sign = lost(150, "timeout")
    assert recovery(sign, fetch(140), fetch(180, source="c")).rerouted.ns == 80 * MS
    for late in (fetch(140), fetch(150), fetch(HEALED_MS), lost(180, "timeout")):
        assert recovery(sign, late).rerouted.ns is None
    assert recovery(sign, fetch(HEALED_MS), healed=False).rerouted.ns == 200 * MS
    assert "nothing was detected" in recovery(fetch(180)).rerouted.said


def test_fetches_lost_are_those_since_it_took_effect_but_cancelled_ones():
    events = (lost(99, "timeout"), lost(100, "timeout"), lost(400, "absent"), fetch(401))
    assert recovery(*events, lost(402, "cancelled")).fetches_lost == 2


def test_a_later_fault_has_the_fetches_that_are_lost_after_it():
    seen = [fault(100, "took-effect"), fault(200, "took-effect", "kill")]
    whole = history(*seen, lost(150, "timeout"), lost(200, "timeout"), lost(250, "timeout"))
    cut, kill = recoveries(whole, fates(whole), faults_seen(whole))
    assert (cut.fetches_lost, kill.fetches_lost) == (1, 2)
    assert (cut.detected.ns, kill.detected.ns) == (50 * MS, 0)


def test_a_sign_of_a_later_fault_is_none_of_the_earlier():
    seen = [fault(100, "took-effect"), fault(200, "took-effect", "kill")]
    whole = history(*seen, lost(200, "timeout"), fetch(250))
    cut, kill = recoveries(whole, fates(whole), faults_seen(whole))
    assert (cut.detected.ns, kill.detected.ns) == (None, 0)
    assert "until the next fault" in cut.detected.said
    assert (cut.rerouted.ns, kill.rerouted.ns) == (None, 50 * MS)


def disk_recovery(*events: Event, kind: str = "disk-full") -> Recovery:
    base = {"kind": kind, "target": "b"}
    seen = [fault(TOOK_MS, "took-effect", **base), fault(HEALED_MS, "healed", **base)]
    whole = history(*seen, *events)
    (one,) = recoveries(whole, fates(whole), faults_seen(whole))
    return one


def disk(t_ms: float, op: str, site: str = "b", cause: str = "") -> Event:
    return ev(t_ms, op, site, key="k1", tier="disk", place=0, cause=cause)


def test_a_disk_is_back_when_it_takes_and_gives():
    took, gave = disk(320, "demote"), disk(350, "promote")
    for kind in ("disk-full", "disk-slow", "store-outage"):
        found = disk_recovery(took, gave, kind=kind).disk_back
        assert found is not None and found.ns == 50 * MS and "came up" in found.said
    assert recovery(took, gave).disk_back is None, "of another fault"
    for some in ([took], [gave], [took, disk(299, "promote")], [took, disk(350, "promote", "a")],
                 [gave, disk(320, "demote", cause="disk")]):  # fmt: skip
        found = disk_recovery(*some).disk_back
        assert found is not None and found.ns is None and not found.unknown
        assert "nothing " in found.said and "any more" in found.said


def before(count: int = 10, hits: int = 10) -> list[Event]:
    return [e for i in range(count) for e in asked(i, hit=i < hits)]


def row(start_ms: int, count: int, **fields: Any) -> list[Event]:
    return [e for i in range(count) for e in asked(start_ms + i, **fields)]


def test_the_rate_is_back_with_the_first_hit_of_enough():
    # Eight of ten before: four of five are enough, with a hit to begin with.
    after = [*asked(301, hit=False), *asked(302), *asked(303, hit=False), *row(304, 3)]
    found = recovery(*before(hits=8), *after).hit_rate_back
    assert found.ns == (312 - HEALED_MS) * MS and found.n == 10
    # All of ten before: all of five.
    found = recovery(*before(), *after, *row(320, 4)).hit_rate_back
    assert found.ns == (314 - HEALED_MS) * MS
    found = recovery(*before(), *after).hit_rate_back
    assert found.ns is None and not found.unknown
    found = recovery(*before(), *row(301, WINDOW - 1)).hit_rate_back
    assert found.ns is None and found.unknown


def test_ttft_is_back_within_five_percent():
    slow = {"ttft_ns": 10_600_000}
    near = {"ttft_ns": 10_500_000}
    found = recovery(*before(), *row(301, 5, **slow), *row(320, 5, **near)).ttft_back
    assert found.ns == (330 - HEALED_MS) * MS
    assert recovery(*before(), *row(301, 9, **slow)).ttft_back.ns is None
    # One that failed is not back, whatever the others are.
    broken = asked(303, status="error", error="gone")
    assert recovery(*before(), *row(301, 2), *broken, *row(304, 2)).ttft_back.ns is None


def test_what_was_sent_before_it_healed_is_no_sign_of_recovery():
    assert recovery(*before(), *row(299, 1), *row(300, 5)).first_good.ns == 10 * MS
    found = recovery(*before(), *row(290, 5)).first_good
    assert found.ns is None and found.unknown
    wrong = [*asked(301), ev(999, "cold", prompt=request(1)["prompt"], output_ids=[0])]
    assert recovery(*wrong).first_good.ns is None


def test_a_sender_that_was_killed_need_not_have_said_that_it_sent():
    events = (request(1), answer(20), fetch(10))
    assert accounted(history(*events)).ok is False
    assert accounted(history(*events, life(11, "a", 1, "killed"))).ok is True
    assert accounted(history(*events, serve(9))).ok is True
