"""How long a chunk lives in a tier: one eviction policy per file."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from geokv.cache.lifetime.fifo import Fifo
from geokv.cache.lifetime.lfu import Lfu
from geokv.cache.lifetime.lru import Lru
from geokv.cache.lifetime.policy import EvictionPolicy
from geokv.cache.lifetime.s3fifo import S3Fifo
from geokv.errors import ConfigError

POLICIES: Mapping[str, Callable[[int], EvictionPolicy]] = MappingProxyType(
    {
        "lru": lambda capacity: Lru(),
        "fifo": lambda capacity: Fifo(),
        "lfu": lambda capacity: Lfu(),
        "s3fifo": S3Fifo,
    }
)
"""Eviction policies by name; each takes the tier's capacity in chunks."""


def make_policy(name: str, capacity: int) -> EvictionPolicy:
    """A fresh policy for a tier of ``capacity`` chunks.

    Raises:
        ConfigError: there is no policy of that name.
    """
    if name not in POLICIES:
        raise ConfigError(f"unknown eviction policy {name!r}", f"known: {', '.join(POLICIES)}")
    return POLICIES[name](capacity)


__all__ = ["POLICIES", "EvictionPolicy", "Fifo", "Lfu", "Lru", "S3Fifo", "make_policy"]
