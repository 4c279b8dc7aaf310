"""What a remote hit saves over computing, per GB it moves, and how much use pays for the light.

    saved          = E(recompute) - E(remote hit)          with the light of its own T
    saved marginal = PUE · (ΔE_prefill + ΔE_decode) - PUE of both ends / 2 · E_transfer
    break-even     = P_lit / saved marginal                remote hits per second

What a request adds where everything is on anyway is all that can pay for a wavelength that is
lit day and night; idle watts and hosts do not stop because somebody fetched. At fewer hits per
second than the break-even the lit pair costs more than reuse saves. As a share of the line it
is that rate times the time the bits of one hit take on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from geokv.measure.energy.account import account, lit_w
from geokv.measure.energy.constants import Constants
from geokv.measure.energy.grid import Ends
from geokv.measure.energy.request import Phases

BYTES_PER_GB = 1e9


@dataclass(frozen=True)
class Saving:
    """Joules at the sites' meters, PUE included."""

    saved_j: float
    saved_marginal_j: float
    moved_gb: float
    """10^9 bytes over each link, of the deployment the run stands for."""
    lit_w: float
    hits_per_s: float | None
    """Break-even; None where a hit saves nothing at the margin, so that no use pays."""
    utilisation: float | None
    """Break-even as a share of the line's rate; above 1 the line is too slow to pay."""
    saved_at_full_use_w: float | None
    """Saved at the margin by a line that is never idle, less the light."""

    @property
    def saved_j_per_gb(self) -> float | None:
        """None when nothing was moved."""
        return self.saved_j / self.moved_gb if self.moved_gb else None

    @property
    def saved_marginal_j_per_gb(self) -> float | None:
        """None when nothing was moved."""
        return self.saved_marginal_j / self.moved_gb if self.moved_gb else None


def saving(
    recompute: Phases,
    remote: Phases,
    numbers: Constants,
    rate_bps: float,
    ends: Ends | None = None,
) -> Saving:
    """Compare the mean requests of both arms of a cell.

    Args:
        rate_bps: the slowest line's, of the deployment the run stands for (not divided by S).
        ends: the power of both sites; the constants' where None.
    """
    ours, theirs = (account(one, numbers, ends) for one in (remote, recompute))
    marginal_j = theirs.marginal_j - ours.marginal_j
    fixed_w = lit_w(numbers, remote.links, ends)
    wire_s = remote.bits / rate_bps if rate_bps else 0.0
    hits_per_s = fixed_w / marginal_j if marginal_j > 0 else None
    return Saving(
        saved_j=theirs.energy_j - ours.energy_j,
        saved_marginal_j=marginal_j,
        moved_gb=remote.bits / 8 / BYTES_PER_GB,
        lit_w=fixed_w,
        hits_per_s=hits_per_s,
        utilisation=None if hits_per_s is None else hits_per_s * wire_s,
        saved_at_full_use_w=marginal_j / wire_s - fixed_w if wire_s else None,
    )
