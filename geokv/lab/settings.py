"""Integer settings of one direction of a link and of a site's TCP, as the kernel takes them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

U32 = 2**32 - 1


def share_u32(share: float) -> int:
    """netem's probability: 0 is never, 2^32 - 1 is always."""
    return min(U32, max(0, round(share * U32)))


@dataclass(frozen=True, slots=True)
class GilbertElliottU32:
    """``tc_netem_gemodel``: chances in 32-bit units.

    Attributes:
        p: good → bad. r: bad → good. h: 1 - loss in the bad state. k1: loss in the good state.
    """

    p: int
    r: int
    h: int
    k1: int

    @property
    def mean_loss(self) -> float:
        """Long-run share of lost packets."""
        bad = self.p / (self.p + self.r) if self.p + self.r else 0.0
        return bad * (1 - self.h / U32) + (1 - bad) * self.k1 / U32


@dataclass(frozen=True, slots=True)
class FourStateU32:
    """``tc_netem_gimodel``: the four-state chain of Salsano and others, in 32-bit units."""

    p13: int
    p31: int
    p32: int
    p14: int
    p23: int


@dataclass(frozen=True, slots=True)
class NetemSettings:
    """Everything one netem qdisc is told.

    Attributes:
        delay_ns: one-way delay.
        jitter_ns: half-width of its uniform spread.
        rate_bps: line rate, 0 for none.
        limit_packets: queue length, in-flight packets included.
        loss_u32: random loss; unused with a ``loss_chain``.
        corrupt_u32, reorder_u32, duplicate_u32: shares of packets.
        reorder_gap: 0 without reordering, else every how many packets one may overtake.
        *_correlation_u32: netem's correlations; their first draw is not seeded, so the plan
            compiler leaves them at 0.
        seed: of the qdisc's random numbers.
    """

    delay_ns: int = 0
    jitter_ns: int = 0
    rate_bps: int = 0
    limit_packets: int = 1000
    loss_u32: int = 0
    loss_chain: GilbertElliottU32 | FourStateU32 | None = None
    corrupt_u32: int = 0
    reorder_u32: int = 0
    reorder_gap: int = 0
    duplicate_u32: int = 0
    delay_correlation_u32: int = 0
    loss_correlation_u32: int = 0
    duplicate_correlation_u32: int = 0
    reorder_correlation_u32: int = 0
    corrupt_correlation_u32: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "loss_chain":
                continue
            top = 2**63 - 1 if field.name in _LONG else 2**64 - 1 if field.name == "seed" else U32
            if not 0 <= value <= top:
                raise ValueError(f"netem {field.name} must be between 0 and {top}, got {value}")

    @property
    def mean_loss(self) -> float:
        """Long-run share of lost packets."""
        if isinstance(self.loss_chain, GilbertElliottU32):
            return self.loss_chain.mean_loss
        return self.loss_u32 / U32

    @property
    def disturbs(self) -> bool:
        """Whether single packets are lost, spread, changed, overtaken or doubled."""
        return bool(
            self.jitter_ns
            or self.loss_u32
            or self.loss_chain
            or self.corrupt_u32
            or self.reorder_u32
            or self.duplicate_u32
        )


_LONG = {"delay_ns", "jitter_ns", "rate_bps"}


@dataclass(frozen=True, slots=True)
class TcpSettings:
    """TCP of one network namespace.

    Attributes:
        rmem_bytes, wmem_bytes: ``tcp_rmem`` and ``tcp_wmem``: smallest, initial, largest buffer.
        slow_start_after_idle: 0 keeps the window over a pause (RFC 5681 §4.1 would drop it).
        no_metrics_save: 1 keeps one connection's history from another's start.
    """

    congestion: str = "cubic"
    rmem_bytes: tuple[int, int, int] = (4096, 131072, 4 * 2**20)
    wmem_bytes: tuple[int, int, int] = (4096, 131072, 4 * 2**20)
    slow_start_after_idle: int = 0
    no_metrics_save: int = 1


def as_record(settings: Any) -> dict[str, Any]:
    """A dataclass of this room as plain data for ``links.json``."""
    return asdict(settings)
