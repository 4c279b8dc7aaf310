"""What a cold engine answers: nothing cached, nothing shared, one prompt at a time.

It runs in a process of its own after the drill, without charge, so it costs the drill no time.
What a site answered is compared with this (INV-1).
"""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NamedTuple

from geokv.errors import RunError
from geokv.site.settings import SiteSettings

_DEADLINE_S = 3600.0


@dataclass(frozen=True)
class ColdQuestion:
    """One prompt, and how long an answer is asked for."""

    prompt: str
    tokens: list[int]
    max_tokens: int


class ColdAnswer(NamedTuple):
    """The greedy answer of a cold engine."""

    prompt: str
    output_ids: list[int]
    text: str


def run_cold(settings: SiteSettings, orders: Connection) -> None:
    """Process entry: take a list of ``ColdQuestion``, give a list of ``ColdAnswer``."""
    # The forkserver has it already; whoever starts this process needs no engine for that.
    from geokv.coordinator.drill.cold_engine import serve

    serve(settings, orders)


def ask_cold(orders: Connection, questions: list[ColdQuestion]) -> list[ColdAnswer]:
    """Have a process that runs ``run_cold`` answer; waits for it.

    Raises:
        RunError: it ended without an answer.
    """
    try:
        orders.send(questions)
        if orders.poll(_DEADLINE_S):
            answers: list[ColdAnswer] = orders.recv()
            return answers
    except (EOFError, OSError) as error:
        raise RunError(f"the cold engine ended: {error}", "see log.txt") from None
    raise RunError("the cold engine gave no answer")
