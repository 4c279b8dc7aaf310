"""The shared KV cache: one room per axis of the survey.

``locality`` (where chunks lie), ``lifetime`` (how long), ``ownership`` (who has
what), ``substrate`` (how they move). ``shared.SharedCache`` is a site's door.
"""

from geokv.cache.keys import ChunkRef, block_keys, chunk_keys, chunk_refs, root_key
from geokv.cache.layout import ChunkLayout
from geokv.cache.lifetime import Lru
from geokv.cache.locality import DiskCost, DiskTier, DramTier, Entry
from geokv.cache.ownership import CentralDirectory, CentralTable, Directory, LocalDirectory
from geokv.cache.plan import Outcome, Plan
from geokv.cache.record import ChunkHeader
from geokv.cache.shared import SharedCache
from geokv.cache.substrate.tcp import SocketOptions, TcpTransport

__all__ = [
    "CentralDirectory",
    "CentralTable",
    "ChunkHeader",
    "ChunkLayout",
    "ChunkRef",
    "Directory",
    "DiskCost",
    "DiskTier",
    "DramTier",
    "Entry",
    "LocalDirectory",
    "Lru",
    "Outcome",
    "Plan",
    "SharedCache",
    "SocketOptions",
    "TcpTransport",
    "block_keys",
    "chunk_keys",
    "chunk_refs",
    "root_key",
]
