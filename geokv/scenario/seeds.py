"""Several seeds: every point of a sweep is run once with each, so that a number has a spread that
comes from more than one drawing of prompts, weights and losses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from geokv.errors import ConfigError

if TYPE_CHECKING:
    from geokv.scenario.model import Scenario

MOST = 1000
AXIS = "seed"
"""What a cell's setting is called that says with which seed it is run."""

Seed = Annotated[int, Field(ge=0, lt=2**63)]
Seeds = Annotated[int, Field(ge=2, le=MOST)] | Annotated[list[Seed], Field(max_length=MOST)]


def listed(seeds: int | Sequence[int] | None, first: int) -> list[int]:
    """Every seed: those that are named, or so many from ``first`` on; ``first`` alone if None."""
    if seeds is None:
        return [first]
    return list(range(first, first + seeds)) if isinstance(seeds, int) else list(seeds)


def parse_seeds(text: str) -> str:
    """``1-5``, ``1,4,9`` or a count, as a scenario file writes it.

    Raises:
        ConfigError: it is none of these.
    """
    if re.fullmatch(r"\d{1,4}", text):
        return text
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,18})(?:-(\d{1,18}))?\s*", part)
        if ends is None:
            raise ConfigError(
                f"--seeds: must be seeds like 1-5 or 1,4,9, or how many, got {text!r}"
            )
        low, high = int(ends[1]), int(ends[2] or ends[1])
        if high < low or high - low >= MOST:
            raise ConfigError(f"--seeds: {part.strip()} must rise, by fewer than {MOST:,}")
        found += range(low, high + 1)
    return f"[{', '.join(map(str, found))}]"


def seed_problems(scenario: Scenario) -> list[str]:
    """Contradictions, as ``path: what is wrong``."""
    seeds = scenario.seeds
    if seeds is None:
        return []
    found = []
    if scenario.is_drill:
        found.append("seeds: a drill is run with many seeds by geokv drill --repeat N")
    if isinstance(seeds, list):
        if len(seeds) < 2:
            found.append(f"seeds: must be at least two, got {seeds}; one is set with seed")
        if len(set(seeds)) < len(seeds):
            found.append("seeds: one is listed twice")
    if any(axis.title == AXIS for axis in scenario.sweep):
        found.append(f"seeds: an axis is called {AXIS} already")
    return found
