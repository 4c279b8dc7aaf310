"""Wrong KV put into this site's DRAM tier on purpose, for the negative controls of a run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from geokv.cache.keys import ChunkRef
from geokv.errors import CacheError
from geokv.site.loading import by_shard
from geokv.site.settings import Tenant
from geokv.site.worker import Worker


def put_foreign(
    worker: Worker, tenant: Tenant, tokens: Sequence[int], donor: Tenant, others: Sequence[int]
) -> int:
    """Every whole chunk of ``tokens`` gets the KV of the donor's chunk at the same place.

    Returns:
        How many chunks were overwritten.

    Raises:
        CacheError: a chunk of either is not in the tier.
    """
    mine = _cached(worker, tenant, tokens)
    theirs = _cached(worker, donor, others)
    if len(theirs) < len(mine):
        raise CacheError(f"the donor has {len(theirs)} chunks for {len(mine)}")
    for ref, other in zip(mine, theirs, strict=False):
        worker.cache.tier.exposed(ref.key)[:] = worker.cache.tier.exposed(other.key)
        worker.cache.hand_over_unseen(ref.key)
    return len(mine)


def damage(worker: Worker, tenant: Tenant, tokens: Sequence[int]) -> int:
    """The sign bit of every number in one block, in the middle of ``tokens``, is flipped.

    Returns:
        1, the chunk that holds the block.

    Raises:
        CacheError: the chunk is not in the tier.
    """
    layout = worker.cache.layout
    refs = _cached(worker, tenant, tokens)
    ref = refs[len(refs) // 2]
    block = by_shard(worker.cache.tier.exposed(ref.key), layout)[:, :, : layout.block_tokens]
    block.neg_()
    worker.cache.hand_over_unseen(ref.key)
    return 1


def _cached(worker: Worker, tenant: Tenant, tokens: Sequence[int]) -> list[ChunkRef]:
    """The whole chunks of ``tokens``, all of them in the tier."""
    refs = worker.chunks(tenant, tokens)
    lost = [ref for ref in refs if ref.key not in worker.cache.tier]
    if not refs or lost:
        raise CacheError(
            f"{len(lost)} of {len(refs)} chunks of {tenant.name} are not in this site's tier"
        )
    return refs


def rot(worker: Worker, tier: Literal["dram", "disk"], chunks: int, seed: int) -> list[bytes]:
    """One bit of each of ``chunks`` readable chunks is flipped where it lies.

    Args:
        seed: which chunks, and which of their bits.

    Returns:
        Their keys; fewer where the tier holds fewer.

    Raises:
        CacheError: there is no such tier here, or a file cannot be written to.
    """
    rng = random.Random(seed)
    disk = worker.cache.tiers.disk
    if tier == "disk" and disk is None:
        raise CacheError(f"site {worker.cache.site!r} has no disk to rot")
    here = worker.cache.tier.keys() if tier == "dram" or disk is None else disk.keys()
    keys = rng.sample(here, min(chunks, len(here)))
    for key in keys:
        bit = rng.randrange(8 * worker.cache.layout.real_bytes)
        if tier == "dram":
            worker.cache.tier.exposed(key)[bit // 8] ^= 1 << bit % 8
        elif disk is not None:
            disk.flip_bit(key, bit)
    return keys
