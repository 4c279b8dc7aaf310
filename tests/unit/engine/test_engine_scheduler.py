from __future__ import annotations

import pytest
from engine_steps import ROOT, Inline, available_blocks, prompt

from geokv.engine import Engine, LlamaModel, Prompt, Request, SamplingParams, SchedulerSettings
from geokv.engine.generation import Generation
from geokv.engine.order import Fcfs, LongestPrefix, make_order
from geokv.engine.request import Answer
from geokv.engine.scheduler import Scheduler
from geokv.errors import ConfigError


def make(model: LlamaModel, blocks: int = 32, **bounds: object) -> tuple[Engine, Scheduler]:
    engine = Engine(model, blocks, Inline(), 4)
    return engine, Scheduler(engine, SchedulerSettings(**bounds))  # type: ignore[arg-type]


def waiting(engine: Engine, scheduler: Scheduler, number: int, length: int) -> Answer:
    """A new answer in the queue, as the loop makes it."""
    params = SamplingParams()
    request = Request(Prompt(prompt(length, number), ROOT, params), engine.lookup, lambda *_: None)
    answer = Answer(request, (number, 0), Generation(params, None, 99))
    scheduler.enqueue(answer)
    return answer


def ran(scheduler: Scheduler) -> list[tuple[int, int]]:
    """The next step as (arrival, tokens), counted as computed and sampled."""
    step, _ = scheduler.plan()
    planned = [(answer.serial[0], part.tokens) for answer, part in step]
    for _, part in step:
        if part.is_last:
            part.seq.tokens.append(1)
        part.seq.computed_tokens += part.tokens
    return planned


def test_decodes_go_first_and_prefills_are_chunked_in_order_of_arrival(small: LlamaModel) -> None:
    engine, scheduler = make(small, max_batch_tokens=10)
    for number, length in enumerate((14, 3, 9)):
        waiting(engine, scheduler, number, length)
    scheduler.admit()
    assert [ran(scheduler) for _ in range(3)] == [
        [(0, 10)],
        [(0, 4), (1, 3), (2, 3)],
        [(0, 1), (1, 1), (2, 6)],
    ]


def test_a_request_is_admitted_only_with_room_for_all_of_it_and_a_reserve(
    small: LlamaModel,
) -> None:
    engine, scheduler = make(small, blocks=20, watermark=0.2)
    waiting(engine, scheduler, 0, 68)
    # Alone it may use the reserve, or a long prompt would wait for ever.
    assert len(scheduler.admit()) == 1
    waiting(engine, scheduler, 1, 4)
    assert scheduler.admit() == []
    engine.close(scheduler.running[0].seq or pytest.fail("no sequence"))
    scheduler.remove(scheduler.running[0])
    assert [answer.serial[0] for answer in scheduler.admit()] == [1]


def test_nobody_overtakes_the_one_that_does_not_fit(small: LlamaModel) -> None:
    engine, scheduler = make(small, blocks=20, watermark=0.0)
    for number, length in enumerate((40, 60, 4)):
        waiting(engine, scheduler, number, length)
    assert [answer.serial[0] for answer in scheduler.admit()] == [0]
    assert [answer.serial[0] for answer in scheduler.waiting] == [1, 2]


def test_a_cached_prefix_needs_no_room(small: LlamaModel) -> None:
    engine, scheduler = make(small, blocks=20, watermark=0.0)
    seq = engine.open(prompt(40, 7), ROOT)
    engine.make_room(seq, 40)
    seq.computed_tokens = 40
    engine.publish(seq)
    waiting(engine, scheduler, 7, 60)
    # 15 blocks in all: 10 are shared with the one that is open, 5 are new.
    assert len(scheduler.admit()) == 1
    assert available_blocks(engine) == 5


def test_the_latest_is_preempted_and_waits_where_it_arrived(small: LlamaModel) -> None:
    engine, scheduler = make(small, blocks=10, watermark=0.0)
    _, second = (waiting(engine, scheduler, number, 20) for number in range(2))
    scheduler.admit()
    assert ran(scheduler) == [(0, 20), (1, 20)]
    third = waiting(engine, scheduler, 2, 4)
    step, preempted = scheduler.plan()
    assert [answer.serial[0] for answer, _ in step] == [0]
    assert preempted == [second]
    assert scheduler.waiting == [second, third]
    assert (second.preemptions, second.seq and second.seq.blocks) == (1, [])
    scheduler.check_integrity()


def test_one_that_is_alone_and_finds_no_room_waits_instead_of_spinning(
    small: LlamaModel,
) -> None:
    engine, scheduler = make(small, blocks=10, watermark=0.0)
    pinned = engine.open(prompt(16, 9), ROOT)
    engine.make_room(pinned, 16)
    answer = waiting(engine, scheduler, 0, 24)
    scheduler.admit()
    ran(scheduler)
    assert scheduler.plan() == ([], [answer])
    assert scheduler.admit() == []
    engine.close(pinned)
    scheduler.room_changed()
    assert scheduler.admit() == [answer]


def test_orders_are_made_by_name() -> None:
    assert isinstance(make_order("fcfs"), Fcfs)
    assert isinstance(make_order("longest-prefix"), LongestPrefix)
    with pytest.raises(ConfigError, match="unknown order 'lifo'") as error:
        make_order("lifo")
    assert "fcfs, longest-prefix" in error.value.hint


def test_the_longest_prefix_is_looked_for_among_the_first_only(small: LlamaModel) -> None:
    engine, scheduler = make(small, blocks=40)
    seq = engine.open(prompt(30, 5), ROOT)
    engine.make_room(seq, 30)
    seq.computed_tokens = 30
    engine.close(seq)
    answers = [waiting(engine, scheduler, number, 30) for number in range(6)]
    assert LongestPrefix().pick(answers) == 5
    assert LongestPrefix(window=5).pick(answers) == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"max_batch_tokens": 0},
        {"max_running": 0},
        {"max_waiting": -1},
        {"watermark": 1.0},
        {"watermark": -0.1},
    ],
)
def test_bounds_that_make_no_sense_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        SchedulerSettings(**bad)  # type: ignore[arg-type]
