"""Serve a measured workload again with a profile's times: an end-to-end test of ``step_s``.

The scheduler is vLLM's (V1, first come first served): every step takes one token of each
running sequence, then as much of the waiting prompts as the token budget allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from geokv.engine.fit.measured import Served
from geokv.engine.profile_cost import GpuProfile

#: ``max_num_seqs`` and ``max_num_batched_tokens`` of the measured runs.
MAX_RUNNING, MAX_BATCH_TOKENS = 128, 2048


@dataclass
class _Running:
    index: int
    prompt: int
    answer: int
    computed: int = 0
    answered: int = 0


def replay(profile: GpuProfile, requests: Sequence[Served]) -> list[Served]:
    """The same requests with first and last tokens as ``profile`` predicts them.

    Args:
        requests: by arrival.
    """
    waiting = deque(range(len(requests)))
    running: list[_Running] = []
    first, last = [0.0] * len(requests), [0.0] * len(requests)
    now = 0.0
    while waiting or running:
        if not running and waiting:
            now = max(now, requests[waiting[0]].queued_s)
        budget = MAX_BATCH_TOKENS
        prefill: list[tuple[int, int]] = []
        decode: list[int] = []
        ready: list[_Running] = []
        for one in running:
            if one.computed == one.prompt:
                decode.append(one.prompt + one.answered)
                ready.append(one)
                budget -= 1
        pending = [one for one in running if one.computed < one.prompt]
        while budget > 0:
            if pending:
                one = pending.pop(0)
            elif waiting and len(running) < MAX_RUNNING and requests[waiting[0]].queued_s <= now:
                index = waiting.popleft()
                one = _Running(index, requests[index].prompt, requests[index].answer)
                running.append(one)
            else:
                break
            chunk = min(budget, one.prompt - one.computed)
            prefill.append((chunk, one.computed))
            one.computed += chunk
            budget -= chunk
            if one.computed == one.prompt:
                ready.append(one)
        now += profile.step_s(prefill, decode, len(ready))
        for one in ready:
            one.answered += 1
            if one.answered == 1:
                first[one.index] = now
            if one.answered == one.answer:
                last[one.index] = now
                running.remove(one)
    return [
        Served(one.prompt, one.answer, one.queued_s, first[index], last[index])
        for index, one in enumerate(requests)
    ]
