"""The two shapes GPU time takes: a broken line, and attention in waves of thread blocks."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from operator import mul
from typing import Annotated

from pydantic import Field, model_validator

from geokv.config import Strict

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(gt=0)]


def _check_knots(at: Sequence[int], values: Sequence[float]) -> None:
    if len(at) != len(values):
        raise ValueError(f"{len(at)} knots need as many values, got {len(values)}")
    if any(left >= right for left, right in pairwise(at)):
        raise ValueError("knots must increase")


class Curve(Strict):
    """Seconds over a count, straight between knots and beyond the last one."""

    at: tuple[int, ...] = Field(min_length=2)
    seconds: tuple[NotNegative, ...]

    @model_validator(mode="after")
    def _matches(self) -> Curve:
        _check_knots(self.at, self.seconds)
        if any(left > right for left, right in pairwise(self.seconds)):
            raise ValueError("more of anything takes no less time: seconds must not fall")
        return self

    def __call__(self, count: int) -> float:
        """Seconds at ``count``; below the first knot the first value."""
        if count <= self.at[0]:
            return self.seconds[0]
        right = min(bisect_right(self.at, count), len(self.at) - 1)
        left = right - 1
        share = (count - self.at[left]) / (self.at[right] - self.at[left])
        return self.seconds[left] + share * (self.seconds[right] - self.seconds[left])


class WaveCost(Strict):
    """Seconds per token of context of the first, second, … wave; level after the last knot."""

    at: tuple[Count, ...] = Field(min_length=1)
    s_per_token: tuple[NotNegative, ...]

    @model_validator(mode="after")
    def _matches(self) -> WaveCost:
        _check_knots(self.at, self.s_per_token)
        if self.at[0] != 1:
            raise ValueError("the first knot is wave 1")
        return self

    @cached_property
    def each(self) -> tuple[float, ...]:
        """One value per wave up to the last knot."""
        values = [self.s_per_token[0]]
        for (left, right), (low, high) in zip(
            pairwise(self.at), pairwise(self.s_per_token), strict=True
        ):
            values += [
                low + (high - low) * step / (right - left) for step in range(1, right - left + 1)
            ]
        return tuple(values)


class Attention(Strict):
    """One layer's attention kernel on one GPU.

    A thread block walks the whole context of one tile of queries of one head;
    ``side_by_side`` of them run at a time. Blocks start longest first, so the k-th wave
    takes as long as its longest walk, at a cost of its own: the first waves find the
    multiprocessors empty. More or longer walks never take less time.

    Args:
        side_by_side: thread blocks of one wave.
        tile_tokens: new tokens that one block serves.
        context_tile: tokens of context that a block reads at a time.
        fixed_s: seconds of a launch over its number of blocks.
        wave_s: seconds per token of the longest walk of each wave.
    """

    side_by_side: Count
    tile_tokens: Count
    context_tile: Count
    fixed_s: Curve
    wave_s: WaveCost

    def tiles(self, new_tokens: int, cached_tokens: int) -> list[int]:
        """Context that each tile of a chunk's queries walks (causal), shortest first."""
        tile = self.tile_tokens
        walks = list(range(cached_tokens + tile, cached_tokens + new_tokens, tile))
        walks.append(cached_tokens + new_tokens)
        return walks

    def waves(self, walks: Sequence[int], blocks_each: int) -> tuple[int, list[int]]:
        """How many blocks ``walks`` are, and the longest walk of each wave.

        Args:
            walks: tokens of context, one entry per tile or decoding sequence.
            blocks_each: thread blocks per entry: heads that are walked on their own.
        """
        ordered = sorted(walks, reverse=True)
        blocks, side = len(ordered) * blocks_each, self.side_by_side
        if side % blocks_each == 0:
            longest = ordered[:: side // blocks_each]
        else:
            longest = [ordered[first // blocks_each] for first in range(0, blocks, side)]
        if (tile := self.context_tile) > 1:
            longest = [-(-walk // tile) * tile for walk in longest]
        return blocks, longest

    def seconds(self, walks: Sequence[int], blocks_each: int) -> float:
        """Seconds of one launch over ``walks``, arguments as of :meth:`waves`."""
        blocks, longest = self.waves(walks, blocks_each)
        each = self.wave_s.each
        first = math.fsum(map(mul, each, longest))
        return self.fixed_s(blocks) + first + each[-1] * sum(longest[len(each) :])
