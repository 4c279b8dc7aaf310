"""Where a site keeps chunks: one tier per file."""

from geokv.cache.locality.dram import DramTier, Entry, Slot

__all__ = ["DramTier", "Entry", "Slot"]
