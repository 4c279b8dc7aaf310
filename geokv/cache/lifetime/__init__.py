"""How long a chunk lives in a tier: one eviction policy per file, or one of the user's own."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from geokv import foreign
from geokv.cache.lifetime.fifo import Fifo
from geokv.cache.lifetime.lfu import Lfu
from geokv.cache.lifetime.lru import Lru
from geokv.cache.lifetime.policy import EvictionPolicy
from geokv.cache.lifetime.s3fifo import S3Fifo
from geokv.cache.lifetime.trial import made_by, try_policy
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

    Args:
        name: one of ``POLICIES``, one registered as ``geokv.eviction``, or ``module:Class``.

    Raises:
        ConfigError: there is no policy of that name, or it is none.
    """
    if name in POLICIES:
        return POLICIES[name](capacity)
    try:
        return made_by(foreign.load(foreign.EVICTION, name), capacity)
    except ConfigError as error:
        raise ConfigError(f"eviction policy {name}: {error.message}", error.hint) from error


def check_policy(name: str) -> None:
    """Try a policy that is no part of geokv; ours have their tests.

    Raises:
        ConfigError: it cannot be had, or does not keep to the protocol.
    """
    if name in POLICIES:
        return
    make_policy(name, 1)
    try:
        try_policy(lambda capacity: make_policy(name, capacity))
    except ConfigError as error:
        raise ConfigError(f"eviction policy {name}: {error.message}", error.hint) from error


__all__ = [
    "POLICIES",
    "EvictionPolicy",
    "Fifo",
    "Lfu",
    "Lru",
    "S3Fifo",
    "check_policy",
    "make_policy",
]
