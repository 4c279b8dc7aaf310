"""Who of the other sites is there: heartbeats, and what is done without them."""

from geokv.cache.membership.breaker import Breaker
from geokv.cache.membership.heartbeat import Membership
from geokv.cache.membership.settings import MembershipSettings

__all__ = ["Breaker", "Membership", "MembershipSettings"]
