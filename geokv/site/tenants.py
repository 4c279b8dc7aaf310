"""Whose keys open this site's doors, and how they cease to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from geokv.errors import CacheError
from geokv.site.settings import Tenant


class Roster:
    """The tenants of a site. Revoking one holds from the next look on."""

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        self._named = {tenant.name: tenant for tenant in tenants}
        self._by_key = {key_digest(tenant.api_key): tenant for tenant in self._named.values()}
        self._revoked: dict[str, None] = {}

    def whose(self, api_key: str) -> Tenant | None:
        """The tenant with this key, unless it has been revoked.

        Keys are compared by digest, so that how long it takes says nothing about them.
        """
        found = self._by_key.get(key_digest(api_key))
        return found if found is not None and self.knows(found.name) else None

    def knows(self, name: str) -> bool:
        """Is this a customer here now? Chunks of others are neither served nor taken."""
        return name in self._named and name not in self._revoked

    def named(self, name: str) -> Tenant:
        """Raises CacheError for a tenant the site does not have."""
        if name not in self._named:
            raise CacheError(f"no tenant {name!r} here", f"known: {', '.join(self._named)}")
        return self._named[name]

    @property
    def last(self) -> Tenant:
        """The one that was named last."""
        return self._named[next(reversed(self._named))]

    def revoke(self, name: str) -> None:
        """Refuse its key from now on. Raises CacheError for an unknown tenant."""
        self._revoked[self.named(name).name] = None


def key_digest(api_key: str) -> bytes:
    """What keys are compared by."""
    return hashlib.blake2b(api_key.encode()).digest()
