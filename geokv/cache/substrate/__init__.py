"""How chunks move between sites: one transport per package."""

from geokv.cache.substrate.transport import ChunkSource, Handler, Served, Transfer, Transport

__all__ = ["ChunkSource", "Handler", "Served", "Transfer", "Transport"]
