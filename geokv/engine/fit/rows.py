"""One line of the check: predicted against measured, and the bar it is held to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from geokv.engine.fit.measured import SPLITWISE_LEFT_OUT, V0, VIDUR, VLLM
from geokv.engine.fit.solve import Array, error_of
from geokv.engine.fit.sources import A100, H100
from geokv.engine.profile_cost import FitError

#: The bar for prefill and decode of H100 and A100.
MEDIAN_BAR, P95_BAR = 0.10, 0.25
BAR_DEVICES, BAR_PHASES = (H100, A100), ("prefill", "decode")


@dataclass(frozen=True)
class Row:
    """One device, phase and source.

    Args:
        what: the points, in a few words.
        held_out: error on one half of the points of a fit to the other half; None where
            nothing was fitted to these points.
        counts: whether the bar applies.
    """

    device: str
    phase: str
    source: str
    what: str
    profile: str
    predicted: Array
    measured: Array
    held_out: FitError | None
    counts: bool

    @property
    def error(self) -> FitError:
        """Of the predictions, over these points."""
        return error_of(self.predicted, self.measured)

    @property
    def within(self) -> bool:
        """Whether median and 95th percentile of the error keep to the bar."""
        return self.error.median <= MEDIAN_BAR and self.error.p95 <= P95_BAR


LEFT_OUT = (
    *SPLITWISE_LEFT_OUT,
    f"{V0}, H100, Llama-3.1-70B layers: shown, but outside the bar; the same layers as {VIDUR}'s "
    "with unfused norms, which take longer, and no profile can be both",
    f"{VIDUR}, 70B layers on one GPU: shown against the roofline; they do not fit one GPU",
    f"{VLLM}, attention launches over more KV than the GPUs' memory holds beside the weights",
    f"{V0}, decode rows with less than one token of context per sequence: they do no work",
)


def row(
    where: tuple[str, str, str, str, str],
    predicted: Sequence[float],
    measured: Sequence[float] | Array,
    held_out: tuple[Sequence[float], Sequence[float] | Array] | None = None,
    counts: bool = True,
) -> Row:
    """A line of the judgement from plain numbers.

    Args:
        where: device, phase, and the rest that names a ``Row``.
        predicted, measured: times of the same points, in one unit.
        held_out: predicted and measured of points that the fit has not seen.
        counts: does the bar apply, where device and phase are of those it is for?
    """
    device, phase = where[:2]
    return Row(
        *where,
        predicted=np.array(predicted),
        measured=np.array(measured),
        held_out=error_of(*held_out) if held_out else None,
        counts=counts and device in BAR_DEVICES and phase in BAR_PHASES,
    )


def missed(rows: Sequence[Row]) -> list[Row]:
    """Rows the bar applies to that are not within it."""
    return [row for row in rows if row.counts and not row.within]
