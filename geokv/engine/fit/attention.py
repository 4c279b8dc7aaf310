"""Fit attention in waves (:class:`~geokv.engine.profile_forms.Attention`) to launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from geokv.engine.fit.measured import Launch
from geokv.engine.fit.solve import Array, curve, relative, rising, rounded
from geokv.engine.profile_forms import Attention, Curve, WaveCost


@dataclass(frozen=True)
class Form:
    """What is chosen and not fitted: tiles, waves and knots."""

    side_by_side: int
    tile_tokens: int
    context_tile: int
    block_knots: tuple[int, ...]
    wave_knots: tuple[int, ...]

    def attention(self, coefficients: Array) -> Attention:
        """The kernel these coefficients describe."""
        split = len(self.block_knots)
        waves = tuple(rounded(value) for value in coefficients[split:])
        return Attention(
            side_by_side=self.side_by_side,
            tile_tokens=self.tile_tokens,
            context_tile=self.context_tile,
            fixed_s=curve(self.block_knots, coefficients[:split]),
            wave_s=WaveCost(at=self.wave_knots, s_per_token=waves),
        )

    def features(self, walks: Sequence[Sequence[int]], blocks_each: Sequence[int]) -> Array:
        """``[launches, coefficients]``: what each coefficient adds to each launch."""
        unit, knots = self._unit, len(self.wave_knots)
        found = [unit.waves(launch, each) for launch, each in zip(walks, blocks_each, strict=True)]
        most = np.arange(1, 1 + max(len(longest) for _, longest in found))
        hats = np.array([np.interp(most, self.wave_knots, row) for row in np.eye(knots)])
        waves = np.array([hats[:, : len(longest)] @ longest for _, longest in found])
        blocks = np.array([count for count, _ in found], dtype=np.float64)
        return np.hstack([rising(self.block_knots, blocks), waves])

    @cached_property
    def _unit(self) -> Attention:
        return Attention(
            side_by_side=self.side_by_side,
            tile_tokens=self.tile_tokens,
            context_tile=self.context_tile,
            fixed_s=Curve(at=(1, 2), seconds=(0.0, 0.0)),
            wave_s=WaveCost(at=(1,), s_per_token=(0.0,)),
        )

    def walks(self, launch: Launch) -> list[int]:
        """Context of each tile and decode of a launch."""
        tiles = self._unit.tiles(*launch.prefill) if launch.prefill else []
        return [*tiles, *launch.decode]


@dataclass(frozen=True)
class Group:
    """Launches of one kernel at one number of blocks per tile or sequence.

    Args:
        weight: of all its launches together.
    """

    launches: Sequence[Launch]
    blocks_each: int
    weight: float = 1.0


def fit_attention(
    form: Form, groups: Sequence[Group], tail: int = 2, by_length: bool = False
) -> Attention:
    """The kernel of least relative error over all groups.

    Args:
        tail: see :func:`~geokv.engine.fit.solve.relative`.
        by_length: launches count in proportion to their time, so that the long ones
            decide the slopes that longer ones are extrapolated with.
    """
    features, seconds, weights = [], [], []
    for group in groups:
        walks = [form.walks(launch) for launch in group.launches]
        features.append(form.features(walks, [group.blocks_each] * len(walks)))
        measured = np.array([launch.seconds for launch in group.launches])
        seconds.append(measured)
        weights.append(np.full(len(walks), group.weight / len(walks)))
    measured = np.concatenate(seconds)
    weight = np.concatenate(weights)
    if by_length:
        weight = weight * measured / measured.mean()
    return form.attention(relative(np.vstack(features), measured, weight, tail))
