"""python tests/unit/cache/disk_full.py FOLDER: a disk tier on a tmpfs that is full, then
read-only. Needs the right to mount (``unshare --user --map-root-user --mount``)."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path

from cache_sites import content, make_layout, make_refs

from geokv.cache.locality import DiskTier
from geokv.cache.record import checksums, make_header
from geokv.errors import CacheError

LAYOUT = make_layout(layers=2, groups=2, chunk_tokens=16, wire_bytes_per_token=512)
REFS = make_refs(LAYOUT, 40)
WARNINGS: list[logging.LogRecord] = []


class Counting(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        WARNINGS.append(record)


async def put(tier: DiskTier, number: int) -> None:
    ref = REFS[number]
    payload = memoryview(content(ref, LAYOUT))
    slot = tier.reserve(ref.key)
    header = make_header(ref, LAYOUT, checksums(LAYOUT, payload), 1, 1)
    await tier.write(slot, header, payload)


async def fill(tier: DiskTier, first: int) -> int:
    """Put until the disk refuses, and twice more; how many it took."""
    taken = refused = 0
    while refused < 3:
        try:
            await put(tier, first + taken)
            taken += 1
        except CacheError:
            refused += 1
            await asyncio.sleep(0.03)
    return taken


async def main(folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], check=True)
    tier = DiskTier(LAYOUT, 1000 * LAYOUT.wire_bytes, folder, retry_s=0.01)
    taken = await fill(tier, 0)
    assert 3 < taken == len(tier) and not list(folder.rglob("*.partial"))
    full = sorted(tier.outage.failures)
    tier.check_integrity(deep=True)
    tier.drop([REFS[0].key, REFS[1].key])
    await asyncio.sleep(0.2)
    await put(tier, 38)  # there is room again
    assert not tier.outage.down
    tier.outage.failures.clear()
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    await fill(tier, 20)
    read_only = sorted(tier.outage.failures)
    tier.check_integrity(deep=True)  # what is there can be read
    subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
    tier.drop([REFS[2].key])
    await asyncio.sleep(0.2)
    await put(tier, 39)
    assert not tier.outage.down
    tier.close()
    print(json.dumps({"full": full, "read-only": read_only, "warnings": len(WARNINGS)}))


if __name__ == "__main__":
    logging.getLogger("geokv").addHandler(Counting())
    asyncio.run(main(Path(sys.argv[1])))
