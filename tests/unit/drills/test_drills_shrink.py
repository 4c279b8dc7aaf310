"""Shrinking: the least of a drill that still fails, whatever makes it fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geokv.drills.shrink import Drill, shrink


def drill(events: int, requests: int = 60, lasts: float = 0.8) -> Drill:
    timeline = [{"fault": "link-cut", "name": f"e{n}", "for": lasts} for n in range(events)]
    return {"workload": {"requests": requests}, "timeline": timeline}


class Asked:
    """Answers as real runs would, by a rule, and counts them."""

    def __init__(self, fails: Callable[[Drill], bool]) -> None:
        self.fails = fails
        self.tried: list[Drill] = []

    def __call__(self, drills: Sequence[Drill]) -> int | None:
        self.tried += drills
        return next((n for n, one in enumerate(drills) if self.fails(one)), None)


def names(one: Drill) -> set[str]:
    return {event["name"] for event in one["timeline"]}


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_exactly_the_guilty_events_are_left(case: tuple[int, set[int]]) -> None:
    count, guilty = case
    needed = {f"e{n}" for n in guilty}
    asked = Asked(lambda one: needed <= names(one))
    least = shrink(drill(count), asked)
    assert names(least) == needed
    assert [event["name"] for event in least["timeline"]] == sorted(
        needed, key=lambda name: int(name[1:])
    ), "in their order"


def test_requests_and_lengths_shrink_to_what_is_needed() -> None:
    def fails(one: Drill) -> bool:
        return one["workload"]["requests"] >= 17 and all(
            event["for"] >= 0.09 for event in one["timeline"]
        )

    least = shrink(drill(1), Asked(lambda one: "e0" in names(one) and fails(one)))
    assert 17 <= least["workload"]["requests"] < 17 * 1.5
    assert 0.09 <= least["timeline"][0]["for"] < 0.09 * 2.1


def test_what_came_in_is_not_changed() -> None:
    before = drill(3)
    shrink(before, Asked(lambda one: True))
    assert before == drill(3)


def test_a_drill_that_fails_without_any_fault_loses_them_all_at_once() -> None:
    asked = Asked(lambda one: True)
    least = shrink(drill(12), asked)
    assert least["timeline"] == [] and asked.tried[0]["timeline"] == []
    assert least["workload"]["requests"] == 1


def test_a_time_that_is_no_number_stays() -> None:
    one = {"workload": {"requests": 1}, "timeline": [{"name": "k", "restart": "never"}]}
    assert shrink(one, Asked(lambda two: "k" in names(two))) == one


@pytest.mark.parametrize("count", [8, 16])
def test_one_guilty_event_of_many_is_found_in_few_runs(count: int) -> None:
    asked = Asked(lambda one: "e5" in names(one))
    shrink(drill(count), asked)
    events: Any = [one for one in asked.tried if one["workload"]["requests"] == 60]
    assert len(events) < 4 * count.bit_length() + 12
