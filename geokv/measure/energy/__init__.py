"""Energy proxy: published watts times measured phases, and what meters said."""

from geokv.measure.energy.constants import Constants, constants
from geokv.measure.energy.request import Joules, joules_by_request, mean_joules, request_joules

__all__ = [
    "Constants",
    "Joules",
    "constants",
    "joules_by_request",
    "mean_joules",
    "request_joules",
]
