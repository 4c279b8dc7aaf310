"""How chunks move between sites.

``transport`` is the contract, ``tcp`` ours. ``agent`` is NIXL's object model, with the
engines ``tcp.backend``, ``nixl`` and ``mooncake`` behind it; ``descriptor`` makes any of
them a transport, and ``choose`` takes one by its name.
"""

from geokv.cache.substrate.transport import (
    ChunkSource,
    Ended,
    Handler,
    Served,
    Transfer,
    Transport,
)

__all__ = ["ChunkSource", "Ended", "Handler", "Served", "Transfer", "Transport"]
