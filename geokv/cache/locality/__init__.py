"""Where a site keeps chunks: one tier per file, and how they stack."""

from geokv.cache.locality.disk import DiskTier
from geokv.cache.locality.disk_cost import DiskCost
from geokv.cache.locality.dram import DramTier
from geokv.cache.locality.slot import Entry, Slot
from geokv.cache.locality.stack import WRITE_POLICIES, TierStack, WritePolicy
from geokv.cache.locality.tier import Tier

__all__ = [
    "WRITE_POLICIES",
    "DiskCost",
    "DiskTier",
    "DramTier",
    "Entry",
    "Slot",
    "Tier",
    "TierStack",
    "WritePolicy",
]
