"""Who is computed in the next step: continuous batching with chunked prefill.

Decodes go first, one token each, so that nobody's answer stutters while a long prompt
comes in; what is left of the step's token budget goes to prefill chunks in order of
arrival (Sarathi-Serve, OSDI 2024). A request is admitted when the pool has blocks for its
whole prompt and a reserve besides; when the pool runs dry the latest arrival gives its
blocks back and is computed again later (PagedAttention, SOSP 2023, §4.5).

No clock, no awaiting: the same calls give the same plans.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from geokv.engine.order import Order, make_order
from geokv.engine.request import Answer
from geokv.engine.sequence import Slice
from geokv.engine.sequences import Sequences
from geokv.errors import ConfigError, EngineError, NoRoom


@dataclass(frozen=True)
class SchedulerSettings:
    """Bounds of a worker's batch.

    Args:
        max_batch_tokens: tokens of one step, prefill chunks and decodes together.
        max_running: answers that have blocks at one time.
        max_waiting: requests that wait for a place; more are refused.
        watermark: share of the pool that admitting leaves free, so that answers can
            grow before somebody must be pre-empted (vLLM's default).
        order: name of a rule in :mod:`geokv.engine.order`.

    Raises:
        ConfigError: a value out of range.
    """

    max_batch_tokens: int = 2048
    max_running: int = 256
    max_waiting: int = 1024
    watermark: float = 0.01
    order: str = "fcfs"

    def __post_init__(self) -> None:
        for name in ("max_batch_tokens", "max_running"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be ≥ 1, got {getattr(self, name)}")
        if self.max_waiting < 0:
            raise ConfigError(f"max_waiting must be ≥ 0, got {self.max_waiting}")
        if not 0 <= self.watermark < 1:
            raise ConfigError(f"watermark must be in [0, 1), got {self.watermark}")


class Scheduler:
    """Moves answers between waiting, loading and running, and plans steps.

    Args:
        order: the rule to use instead of the one ``settings`` names.
    """

    def __init__(
        self, sequences: Sequences, settings: SchedulerSettings, order: Order | None = None
    ) -> None:
        self.waiting: list[Answer] = []
        self.loading: set[Answer] = set()
        self.running: list[Answer] = []
        self._sequences = sequences
        self._settings = settings
        self._order = order or make_order(settings.order)
        self._reserve = math.ceil(settings.watermark * sequences.pool.blocks)
        #: Nothing was given back since the one at the head found no room.
        self._stuck = False

    @property
    def idle(self) -> bool:
        """Whether there is nothing to compute, now or once something is loaded."""
        return not (self.waiting or self.loading or self.running)

    def enqueue(self, answer: Answer) -> None:
        """Let it wait, in order of arrival."""
        place = len(self.waiting)
        while place and self.waiting[place - 1].serial > answer.serial:
            place -= 1
        self.waiting.insert(place, answer)
        self._stuck = False

    def room_changed(self) -> None:
        """Blocks were given back: whoever waits may fit now."""
        self._stuck = False

    def admit(self) -> list[Answer]:
        """Give blocks to those that wait, as far as they go; who got some.

        A new one that has something to load is ``loading`` afterwards, until
        :meth:`loaded`; everybody else is ``running``.
        """
        admitted: list[Answer] = []
        while self.waiting and not self._stuck:
            index = self._order.pick(self.waiting)
            answer = self.waiting[index]
            places = sum(one.places for one in (*self.running, *self.loading))
            if places + answer.places > self._settings.max_running:
                break
            if not self._place(answer):
                self._stuck = True
                break
            del self.waiting[index]
            admitted.append(answer)
        return admitted

    def run(self, answer: Answer) -> None:
        """It is ready to be computed."""
        if answer in self.running:
            return
        self.loading.discard(answer)
        self.running.append(answer)
        self.running.sort(key=lambda one: one.serial)

    def hold_arriving(self) -> None:
        """Compute on KV that is still coming in only while there is nothing else to compute.

        A step that waits for a link holds up everybody in it, and the device.
        """
        for answer in [one for one in self.loading if one.is_arriving]:
            self.run(answer)
        arriving = [answer for answer in self.running if answer.is_arriving]
        alone = len(arriving) == 1 == len(self.running) and not self.waiting
        for answer in self.running:
            arrival = answer.arrival
            answer.held = arrival is not None and not (alone and arrival.begun)

    def make_way(self) -> None:
        """Somebody else may be computed: no step stands still for a link any longer."""
        for answer in self.running:
            arrival = answer.arrival
            if arrival is not None and (self.waiting or len(self.running) > 1):
                arrival.interrupt()

    def remove(self, answer: Answer) -> None:
        """Forget it, wherever it is."""
        self.loading.discard(answer)
        for place in (self.waiting, self.running):
            if answer in place:
                place.remove(answer)
        self._stuck = False

    def plan(self) -> tuple[list[tuple[Answer, Slice]], list[Answer]]:
        """The next step, and who lost its blocks to make it possible.

        Every slice has its blocks. Empty when nothing can run.
        """
        chosen: dict[Answer, Slice] = {}
        preempted: list[Answer] = []
        budget = self._settings.max_batch_tokens
        for answer in sorted(self.running, key=_decodes_first):
            if not budget:
                break
            if answer.held or answer in preempted:
                continue
            assert answer.seq is not None
            tokens = min(answer.seq.remaining_tokens, budget)
            for victim in self._make_room(answer, tokens):
                preempted.append(victim)
                if victim in chosen:
                    budget += chosen.pop(victim).tokens
            if answer not in preempted:
                chosen[answer] = Slice(answer.seq, tokens)
                budget -= tokens
        return list(chosen.items()), preempted

    def check_integrity(self) -> None:
        """Every answer is in one place, with blocks where it should have some.

        Raises:
            EngineError: naming what is not so.
        """
        everybody = [*self.waiting, *self.loading, *self.running]
        if len(set(everybody)) != len(everybody):
            raise EngineError("scheduler: an answer is in two places")
        if any(answer.seq is not None and answer.seq.blocks for answer in self.waiting):
            raise EngineError("scheduler: an answer waits and has blocks")
        placed = (*self.loading, *self.running)
        if any(answer.seq is None or answer.seq.closed for answer in placed):
            raise EngineError("scheduler: an answer is to be computed and has no sequence")

    def _place(self, answer: Answer) -> bool:
        """Open or resume its sequence with blocks for all its tokens, if there is room."""
        sequences, prompt = self._sequences, answer.request.prompt
        tokens = answer.tokens
        # Alone, one may use the reserve: nobody else is there to grow.
        reserve = self._reserve if self.running or self.loading else 0
        if sequences.shortfall(tokens, prompt.root, prompt.reuse) + reserve > 0:
            return False
        resumed = answer.seq is not None
        if answer.seq is None:
            answer.seq = sequences.open(tokens, prompt.root, prompt.reuse)
        else:
            sequences.resume(answer.seq, prompt.reuse)
        sequences.make_room(answer.seq, len(tokens))
        if prompt.load is not None and not resumed:
            self.loading.add(answer)
        else:
            self.run(answer)
        return True

    def _make_room(self, answer: Answer, tokens: int) -> Iterable[Answer]:
        """Pre-empt the latest until ``answer`` has its blocks, or is the latest itself."""
        seq = answer.seq
        assert seq is not None
        while True:
            try:
                self._sequences.make_room(seq, seq.computed_tokens + tokens)
                return
            except NoRoom:
                # Into the blocks of one that is still coming in, somebody else writes.
                victim = [one for one in self.running if not one.is_arriving][-1]
                self._preempt(victim)
                yield victim
                if victim is answer:
                    return

    def _preempt(self, answer: Answer) -> None:
        assert answer.seq is not None
        self.running.remove(answer)
        self._sequences.preempt(answer.seq, keep=answer.request.prompt.reuse)
        answer.preemptions += 1
        self.enqueue(answer)


def _decodes_first(answer: Answer) -> tuple[bool, tuple[int, int]]:
    assert answer.seq is not None
    return answer.seq.remaining_tokens > 1, answer.serial
