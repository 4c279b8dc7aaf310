"""Fixtures of the cache's tests; the helpers are in ``cache_sites``."""

from __future__ import annotations

from cache_sites import world

__all__ = ["world"]
