"""A policy of somebody else's, tried against the protocol before a run depends on it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from geokv.cache.lifetime.policy import EvictionPolicy
from geokv.errors import ConfigError

METHODS = ("added", "used", "chained", "removed", "evict", "keys")
_PLACES = 4


def made_by(factory: Any, capacity: int) -> EvictionPolicy:
    """A policy of a class or function that takes the capacity in chunks, or nothing.

    Raises:
        ConfigError: it cannot be called so, or lacks a method of the protocol.
    """
    if not callable(factory):
        raise ConfigError(f"is {factory!r}, which makes no policy", "name a class")
    try:
        policy = factory(capacity) if _takes_capacity(factory) else factory()
    except Exception as error:
        raise ConfigError(f"cannot be made: {type(error).__name__}: {error}") from error
    missing = [name for name in METHODS if not callable(getattr(policy, name, None))]
    if missing:
        raise ConfigError(
            f"has no method {', '.join(missing)}",
            "geokv.EvictionPolicy says what a policy has",
        )
    made: EvictionPolicy = policy
    return made


def try_policy(make: Callable[[int], EvictionPolicy]) -> None:
    """Play a short life of a tier through: fill, read, pin, make room, empty.

    Raises:
        ConfigError: the policy raises, gives up what may not go or is not there, finds nobody
            although somebody may go, or loses count of its keys.
    """
    policy = make(_PLACES)
    keys = [bytes([number]) * 16 for number in range(2 * _PLACES)]
    here: set[bytes] = set()
    try:
        for key in keys[:_PLACES]:
            policy.added(key)
            here.add(key)
        policy.chained(keys[:2])
        policy.used(keys[2])
        _expect_keys(policy, here)
        if policy.evict(keys[_PLACES], lambda _: False) is not None:
            raise ConfigError("evict: gave a key up although none may go")
        _expect_keys(policy, here)
        for coming in keys[_PLACES:]:
            pinned = min(here)
            victim = policy.evict(coming, lambda key: key != pinned)  # noqa: B023
            if victim not in here:
                raise ConfigError(f"evict: gave up {_shown(victim)}, which was not there")
            if victim == pinned:
                raise ConfigError("evict: gave up a key that may not go")
            here.remove(victim)
            policy.added(coming)
            here.add(coming)
            _expect_keys(policy, here)
        for key in sorted(here):
            policy.removed(key)
        _expect_keys(policy, set())
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"failed its trial: {type(error).__name__}: {error}") from error


def _expect_keys(policy: EvictionPolicy, here: set[bytes]) -> None:
    if sorted(policy.keys()) != sorted(here):
        raise ConfigError("keys: does not name exactly the chunks of the tier")


def _shown(key: Any) -> str:
    return "nothing" if key is None else repr(key)


def _takes_capacity(factory: Callable[..., Any]) -> bool:
    try:
        inspect.signature(factory).bind(1)
    except TypeError:
        return False
    return True
