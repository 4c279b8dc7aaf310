"""The steps of a short run of three sites, told at the pace of the clock.

They are written here, not seen: what becomes of steps at an endpoint, in Prometheus and on a page
can be looked at without a VM. A real run's are read in test_cli_prometheus.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

Event = dict[str, Any]
REQUESTS = 120
"""A p99 is shown from a hundred answers on, and not before."""
LINKS = ("a-b", "b-c", "a-c")
_STEP_S = 0.05
_CUT_S, _CRASH_S = (1.0, 3.0), (3.5, 5.0)
_NS = 10**9


def play(take: Callable[[Event], None]) -> list[Event]:
    """Tell a run of some 7 s; all that was told."""
    told: list[Event] = []

    def tell(event: Event) -> None:
        told.append(event)
        take(event)

    start_s = time.monotonic()
    for at_s, event in _steps():
        time.sleep(max(0.0, start_s + at_s - time.monotonic()))
        tell(event)
    return told


def _steps() -> Iterator[tuple[float, Event]]:
    """(when, step), in order."""
    yield 0.0, {"event": "folder", "path": "r", "parts": 1, "kernel": "k"}
    yield 0.0, {"event": "cell", "part": 0, "cell": 0, "label": "", "t_ns": 0, "links": []}
    # Read once before anything has happened.
    for number in range(REQUESTS):
        at_s = 1.0 + number * _STEP_S
        for fault in _faults(at_s - 1.0):
            yield at_s, {**fault, "part": 0, "cell": 0, "t_ns": round(at_s * _NS)}
        yield at_s, _request(number, round(at_s * _NS))
        if number % 4 == 0:
            yield at_s, _sample(number // 2, at_s - 1.0)
    end_s = 2.0 + REQUESTS * _STEP_S
    yield end_s, {"event": "report"}
    yield end_s, {"event": "verdict", "verdict": "pass", "exit_code": 0, "reasons": []}


def _faults(at_s: float) -> Iterator[Event]:
    for (begin_s, end_s), name, kind, target in (
        (_CUT_S, "cut", "link-cut", "a-b"),
        (_CRASH_S, "crash", "site-kill", "c"),
    ):
        said = {"event": "fault", "name": name, "kind": kind, "target": target, "said": ""}
        if abs(at_s - begin_s) < _STEP_S / 2:
            yield {**said, "phase": "asked"}
            yield {**said, "phase": "took-effect"}
        if abs(at_s - end_s) < _STEP_S / 2:
            yield {**said, "phase": "healed"}


def _request(number: int, t_ns: int) -> Event:
    site = "abc"[number % 3]
    dead = site == "c" and _CRASH_S[0] <= number * _STEP_S < _CRASH_S[1]
    remote = 0 if dead or site == "a" else 4
    return {
        "event": "request", "part": 0, "cell": 0, "request_id": f"r{number}", "site": site,
        "tenant": "t", "warmup": False, "status": "error" if dead else "ok",
        "error": "refused" if dead else "", "t_ns": t_ns, "sent_ns": t_ns - _NS // 20,
        "ttft_ns": None if dead else (20 + number // 2) * 10**6, "ttft_ms": None,
        "source": "remote" if remote else "none", "prompt_tokens": 1056,
        "cached_tokens": 256 * remote, "chunks_remote": remote, "chunks_local": 0,
        "chunks_disk": 0, "wire_bytes": 500_000 * remote,
    }  # fmt: skip


def _sample(number: int, at_s: float) -> Event:
    places = {"total": 100, "free": 90 - number, "cached": number, "pinned": 10, "reserved": 0}
    there = {
        "up": True, "answers": True, "running": 1, "waiting": 0, "under_way": 1,
        "pools": dict.fromkeys(("device", "dram", "disk"), places),
    }  # fmt: skip
    gone = {"up": False, "answers": False}
    dark = _CUT_S[0] <= at_s < _CUT_S[1]
    return {
        "event": "sample", "part": 0, "t_ns": round((1 + at_s) * _NS), "in_flight": number % 4,
        "sites": {
            site: gone if site == "c" and _CRASH_S[0] <= at_s < _CRASH_S[1] else there
            for site in "abc"
        },
        "links": {
            link: {
                "state": "dark" if dark and link == "a-b" else "ok", "km": 50.0,
                "rtt_ns": 500_000, "rate_bps": 10**11, "load": [0.25, 0.01],
                "bytes": [1_000_000 * number, 20_000 * number],
            }
            for link in LINKS
        },
    }  # fmt: skip
