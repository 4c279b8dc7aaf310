"""The statistics of a run as ``summary.json`` has them; rounded here as everything is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geokv.measure.percentile import Interval
from geokv.measure.rounded import digits, to_ms
from geokv.measure.statistics.carried import CONFIDENCE, least_for_interval, least_for_number
from geokv.measure.statistics.differences import Compared, Difference, differences
from geokv.measure.statistics.intervals import LEAST_FOR_MEAN, RESAMPLES
from geokv.measure.statistics.many import ALPHA
from geokv.measure.statistics.ttft import Ttft
from geokv.measure.statistics.words import (
    carried_said,
    differences_said,
    spread_said,
    warmup_said,
)
from geokv.scenario import Scenario


def shown_ttft(ttft: Ttft) -> dict[str, Any]:
    """The keys of an arm, or of requests of a drill, that say how long it took; empty values are
    refused ones."""
    return {
        "ttft_mean_ms": to_ms(ttft.mean_ns),
        "ttft_p50_ms": to_ms(ttft.p50_ns),
        "ttft_p99_ms": to_ms(ttft.p99_ns),
        "ttft_max_ms": to_ms(ttft.max_ns),
        "interval": _interval("p50", ttft.p50_interval),
        "mean_interval": _interval("mean", ttft.mean_interval),
        "p99_interval": _interval("p99", ttft.p99_interval),
    }


def statistics(scenario: Scenario, clock: str, points: Sequence[Compared]) -> dict[str, Any]:
    """What is said of spread, warm-up and differences of a run."""
    found = differences(points)
    per_seed = len(scenario.seed_list) > 1
    return {
        **declared(scenario, clock),
        "tests": {
            "alpha": ALPHA,
            "adjusted_for": sum(one.p is not None for one in found),
            "by": "Student's paired test over seeds" if per_seed else "Mann and Whitney's U test",
        },
        "differences": [_difference(one) for one in found],
        "said": differences_said(found, per_seed),
    }


def declared(scenario: Scenario, clock: str) -> dict[str, Any]:
    """What holds of any run before its numbers are looked at."""
    seeds = list(scenario.seed_list)
    least, enclosed = least_for_number(0.99), least_for_interval(0.99)
    return {
        "unit": "seed" if len(seeds) > 1 else "request",
        "seeds": seeds,
        "spread": {
            "from": "machine" if clock == "wall" else "workload",
            "said": spread_said(clock, seeds),
        },
        "warmup": {"requests": scenario.workload.warmup, "said": warmup_said(scenario)},
        "p99": {"least": least, "least_for_interval": enclosed},
        "intervals": {
            "confidence": CONFIDENCE,
            "resamples": RESAMPLES,
            "mean_from": LEAST_FOR_MEAN,
        },
    }


def notes(scenario: Scenario, clock: str) -> list[str]:
    """The fine print below a table."""
    n, seeds = scenario.workload.requests, len(scenario.seed_list)
    each = "of each seed " if seeds > 1 else ""
    return [
        f"{each}{carried_said(n, least_for_number(0.99), least_for_interval(0.99))}",
        f"spread: {spread_said(clock, scenario.seed_list)}",
        f"warm-up requests: {warmup_said(scenario)}",
    ]


def _interval(of: str, interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {
        "of": of,
        "low_ms": to_ms(interval.low_ns),
        "high_ms": to_ms(interval.high_ns),
        "confidence": round(interval.confidence, 4),
    }


def _difference(one: Difference) -> dict[str, Any]:
    return {
        "cells": [cell.index for cell in one.cells],
        "labels": [cell.label for cell in one.cells],
        "arms": [arm.replace("-", "_") for arm in one.arms],
        "axis": one.axis,
        "samples": list(one.samples),
        "p": digits(one.p, 3),
        "p_adjusted": digits(one.adjusted, 3),
        "outcome": one.outcome,
    }
