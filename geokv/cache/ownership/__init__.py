"""Who has which chunk: one directory per file."""

from geokv.cache.ownership.central import CentralDirectory, CentralTable
from geokv.cache.ownership.directory import Directory
from geokv.cache.ownership.local import LocalDirectory
from geokv.cache.ownership.sequenced import SequencedDirectory
from geokv.cache.ownership.sequenced_table import SequencedTable

__all__ = [
    "CentralDirectory",
    "CentralTable",
    "Directory",
    "LocalDirectory",
    "SequencedDirectory",
    "SequencedTable",
]
