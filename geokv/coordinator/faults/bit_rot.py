"""A bit flips in chunks that were stored whole and verified."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from geokv.cache.locality.disk_file import SUFFIX, flip_bit, inspect_file
from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.errors import FaultError, RecordError
from geokv.scenario.timeline import BitRot

_LOOK_EVERY_S = 0.005


class BitRotFault(Fault[BitRot]):
    """On the disk it is done from outside, and seen in the bytes of the files. In DRAM the site
    itself does it, and says of which chunks: no other process can look there."""

    kind = "bit-rot"

    async def inject(self) -> Evidence:
        keys = await (self._on_disk() if self.event.tier == "disk" else self._in_dram())
        tier, site = self.event.tier, self.event.site
        said = f"one bit of each of {len(keys)} chunks in the {tier} of {site} has flipped"
        return Evidence(now_ns(), said, {"keys": keys})

    async def _in_dram(self) -> list[str]:
        site, wanted = self.event.site, self.event.chunks
        seed = self.stage.rng(self.event.title).getrandbits(32)
        said = await self.stage.control(site).post("/rot", tier="dram", chunks=wanted, seed=seed)
        keys: list[str] = said["keys"]
        if not keys:
            raise FaultError(f"the dram of site {site} holds nothing")
        return keys

    async def _on_disk(self) -> list[str]:
        disk = self.stage.settings(self.event.site).disk
        if disk is None:
            raise FaultError(f"site {self.event.site} has no disk")
        # What is on its way down is waited for: chunks get there when they can.
        while not (found := sorted(Path(disk.folder).rglob(f"*{SUFFIX}"))):
            await asyncio.sleep(_LOOK_EVERY_S)
        rng = self.stage.rng(self.event.title)
        chosen = sorted(rng.sample(found, min(self.event.chunks, len(found))))
        for path in chosen:
            before = _digest(path)
            try:
                flip_bit(path, rng.randrange(8 * inspect_file(path).payload_bytes))
            except (OSError, RecordError) as error:
                raise FaultError(f"{path.name} cannot be damaged: {error}") from None
            if _digest(path) == before:
                raise FaultError(f"{path.name} has the same bytes as before")
        return [path.stem for path in chosen]


def _digest(path: Path) -> bytes:
    return hashlib.blake2b(path.read_bytes()).digest()
