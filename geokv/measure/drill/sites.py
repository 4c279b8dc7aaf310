"""TTFT by the site that was asked: in fair weather, while faults lasted, and since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geokv.measure.checker.exchanges import Exchange, ttfts_of
from geokv.measure.drill.fates import Fates
from geokv.measure.drill.faults import FaultSeen
from geokv.measure.percentile import percentile
from geokv.measure.statistics.carried import tail


@dataclass(frozen=True)
class Times:
    """TTFT of the answered of ``asked`` requests; None where there was none, or too few for it."""

    asked: int
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None


@dataclass(frozen=True)
class SiteTimes:
    """What people at one site saw.

    Attributes:
        site: at whose door they asked.
        before: what had ended when the first fault took effect.
        during: what was under way while any fault lasted.
        after: what was sent when all had healed, and what lay between two faults.
    """

    site: str
    before: Times
    during: Times
    after: Times

    @property
    def rise(self) -> float | None:
        """The larger of two factors, of the median and of the slowest TTFT, from ``before`` to
        ``during``; None where either holds no answer."""
        pairs = (
            (self.before.p50_ns, self.during.p50_ns),
            (self.before.max_ns, self.during.max_ns),
        )
        factors = [then / usual for usual, then in pairs if usual and then is not None]
        return max(factors) if len(factors) == len(pairs) else None


def times_of(rows: Sequence[Exchange]) -> Times:
    """Of these requests."""
    times = ttfts_of(rows)
    return Times(
        len(rows),
        percentile(times, 0.5) if times else None,
        tail(times, 0.99),
        max(times, default=None),
    )


def by_site(found: Fates, faults: Sequence[FaultSeen]) -> list[SiteTimes]:
    """Of every site that was asked, by name; none where no fault was seen to take effect."""
    seen = [fault for fault in faults if fault.took_ns is not None]
    if not seen:
        return []
    first_ns = min(fault.took_ns for fault in seen if fault.took_ns is not None)
    rows = [one for one, _ in found.by_request]
    return [
        _of_site(site, [one for one in rows if _door(one) == site], seen, first_ns)
        for site in sorted({_door(one) for one in rows})
    ]


def _of_site(
    site: str, rows: Sequence[Exchange], seen: Sequence[FaultSeen], first_ns: int
) -> SiteTimes:
    before, during, after = [], [], []
    for one in rows:
        if one.answer is not None and one.answer["done_ns"] <= first_ns:
            before.append(one)
        elif any(fault.felt_by(one) for fault in seen):
            during.append(one)
        else:
            after.append(one)
    return SiteTimes(site, times_of(before), times_of(during), times_of(after))


def _door(one: Exchange) -> str:
    return str(one.request.get("door", one.site))
