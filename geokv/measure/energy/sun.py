"""Follow the sun: at which hour which site should serve, and whether it fetches or computes.

A prompt arrives at the asker; its prefix is cached at the provider. What a request draws at
each site is known from the run; what a kWh costs there at each hour, in grams of CO2
equivalent or in money, the scenario says. Four ways:

    compute here    recompute at the asker
    fetch here      remote hit at the asker: GPU and host here, one half of the link at each end
    serve there     local hit at the provider; the question crosses the link, its bits are not
                    counted (kilobytes), its share of the light is
    compute there   recompute at the provider: of interest to prompts that nobody has cached

    cost(way, hour) = Σ over sites  PUE(site) · E(way, site) · I(site, hour) / 3.6 MJ

The decision is by hour and by request: one fetch more or less does not move a grid. Where a
prefix stays after it was fetched, later requests are local hits at the asker; that is the
cache's business and not counted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from geokv.measure.energy.account import J_PER_KWH, Account, account
from geokv.measure.energy.constants import Constants
from geokv.measure.energy.request import Phases

COMPUTE_HERE, FETCH_HERE = "compute here", "fetch here"
SERVE_THERE, COMPUTE_THERE = "serve there", "compute there"
WARM = (COMPUTE_HERE, FETCH_HERE, SERVE_THERE)
"""Ways of a request whose prefix the provider has cached."""
COLD = (COMPUTE_HERE, COMPUTE_THERE)
"""Ways of a request whose prefix nobody has."""


@dataclass(frozen=True)
class Hour:
    """What one request costs in an hour, by way."""

    hour: int
    costs: dict[str, float]

    def best(self, ways: Sequence[str]) -> str:
        """The cheapest of some ways; of equals the first."""
        return min(ways, key=lambda way: self.costs[way])


@dataclass(frozen=True)
class Day:
    """24 hours of one cell, as many requests in each."""

    hours: list[Hour]

    def mean(self, way: str) -> float:
        """Of a request, when every hour goes the same way."""
        return sum(hour.costs[way] for hour in self.hours) / len(self.hours)

    def following(self, ways: Sequence[str]) -> float:
        """Of a request, when each hour goes its cheapest way."""
        return sum(hour.costs[hour.best(ways)] for hour in self.hours) / len(self.hours)

    def saved(self, ways: Sequence[str]) -> float | None:
        """Share that following saves over the best of what is always the same; None of free
        power."""
        fixed = min(self.mean(way) for way in ways)
        return 1 - self.following(ways) / fixed if fixed > 0 else None


def follow(
    arms: Mapping[str, Phases],
    numbers: Constants,
    here: tuple[Sequence[float], float],
    there: tuple[Sequence[float], float],
) -> Day:
    """A day of one cell.

    Args:
        arms: recompute, local-hit and remote-hit, mean requests measured at the asker; the
            provider is taken to have the same GPUs.
        here, there: of asker and provider, what a kWh costs at each hour (24 values), and PUE.
    """
    costs_here, pue_here = here
    costs_there, pue_there = there
    links = arms["remote-hit"].links
    computed = account(arms["recompute"], numbers)
    fetched = account(arms["remote-hit"], numbers)
    served, computed_there = (
        account(replace(arms[arm], needs_link=True, links=links, bits=0.0), numbers)
        for arm in ("local-hit", "recompute")
    )
    hours = []
    for hour, (near, far) in enumerate(zip(costs_here, costs_there, strict=True)):
        at_home, away = near * pue_here / J_PER_KWH, far * pue_there / J_PER_KWH
        costs = {
            COMPUTE_HERE: _cost(computed, at_home, at_home, away),
            FETCH_HERE: _cost(fetched, at_home, at_home, away),
            SERVE_THERE: _cost(served, away, at_home, away),
            COMPUTE_THERE: _cost(computed_there, away, at_home, away),
        }
        hours.append(Hour(hour, costs))
    return Day(hours)


def _cost(one: Account, serving: float, near: float, far: float) -> float:
    """With what a joule costs where it is served, and at both ends of the link."""
    return one.at_the_server_j * serving + one.on_the_link_j * (near + far) / 2
