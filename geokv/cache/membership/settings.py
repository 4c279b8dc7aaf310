"""When a peer is down by its heartbeats."""

from __future__ import annotations

from dataclasses import dataclass

from geokv.errors import ConfigError


@dataclass(frozen=True)
class MembershipSettings:
    """When a peer is down.

    Args:
        period_s: between two beats to the same peer.
        misses: beats in a row without an answer.
        cooldown_s: between two tries of a peer that is down.

    Raises:
        ConfigError: a number is impossible.
    """

    period_s: float
    misses: int
    cooldown_s: float

    def __post_init__(self) -> None:
        if self.period_s < 0.001 or self.cooldown_s < self.period_s:
            raise ConfigError(
                f"membership: period must be ≥ 1 ms and cooldown ≥ period, "
                f"got {self.period_s:g} s and {self.cooldown_s:g} s"
            )
        if self.misses < 1:
            raise ConfigError(f"membership.misses: must be ≥ 1, got {self.misses}")
