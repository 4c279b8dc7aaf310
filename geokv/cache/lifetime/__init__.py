"""How long a chunk lives in a tier: one eviction policy per file."""

from geokv.cache.lifetime.lru import Lru
from geokv.cache.lifetime.policy import EvictionPolicy

__all__ = ["EvictionPolicy", "Lru"]
