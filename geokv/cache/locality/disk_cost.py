"""What a disk costs when a run stands for one: time per direction, charged.

Both directions are serial resources of their own: requests of one direction share its
bandwidth in turn, their latencies overlap, as a device with deep queues has it. That
reads and writes of flash disturb each other is not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from geokv.clock import now_ns, wait_until_ns
from geokv.errors import ConfigError
from geokv.units import NS_PER_S

DiskDirection = Literal["read", "write"]


@dataclass(frozen=True)
class DiskCost:
    """One data-centre NVMe drive, unless told otherwise.

    Bandwidths: Samsung PM9A3 U.2, PCIe 4.0 x4, vendor's sheet of May 2020 (6.5 and
    3.5 GB/s sequential). Latencies: Intel DC P4500, Lenovo's product guide (85 and
    20 µs, random 4 KiB). A PCIe 5.0 drive (PM1743: 13 and 6.6 GB/s) has twice that.

    Raises:
        ConfigError: a bandwidth is not positive or a latency negative.
    """

    read_bytes_per_s: float = 6.5e9
    write_bytes_per_s: float = 3.5e9
    read_latency_s: float = 85e-6
    write_latency_s: float = 20e-6

    def __post_init__(self) -> None:
        for name in ("read_bytes_per_s", "write_bytes_per_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"disk.{name}: must be > 0, got {getattr(self, name):g}")
        for name in ("read_latency_s", "write_latency_s"):
            if getattr(self, name) < 0:
                raise ConfigError(f"disk.{name}: must be ≥ 0, got {getattr(self, name):g}")

    def scaled(self, byte_scale: float) -> DiskCost:
        """The same times for bytes that are divided by ``byte_scale``."""
        return replace(
            self,
            read_bytes_per_s=self.read_bytes_per_s / byte_scale,
            write_bytes_per_s=self.write_bytes_per_s / byte_scale,
        )

    def occupied_ns(self, direction: DiskDirection, n_bytes: int) -> int:
        """How long ``n_bytes`` keep others of that direction waiting."""
        rate = self.read_bytes_per_s if direction == "read" else self.write_bytes_per_s
        return round(n_bytes / rate * NS_PER_S)

    def latency_ns(self, direction: DiskDirection) -> int:
        """What every request waits for beside its bytes."""
        seconds = self.read_latency_s if direction == "read" else self.write_latency_s
        return round(seconds * NS_PER_S)


class DiskTime:
    """The time of one disk: book when the request is made, pass it after the work.

    Args:
        cost: ``None`` charges nothing; time is then what the work took.

    Attributes:
        late_ns: time by which real work outlasted its charge, summed.
        busy_ns: time charged for bytes, by direction.
    """

    def __init__(self, cost: DiskCost | None) -> None:
        self.late_ns = 0
        self.slowness = 1.0
        """Everything takes so many times as long (a worn or shared drive)."""
        self.busy_ns: dict[DiskDirection, int] = {"read": 0, "write": 0}
        self._cost = cost
        self._free_ns: dict[DiskDirection, int] = {"read": 0, "write": 0}

    def book(self, direction: DiskDirection, n_bytes: int) -> int:
        """When a request made now is over (monotonic ns); 0 if nothing is charged."""
        if self._cost is None:
            return 0
        occupied_ns = round(self._cost.occupied_ns(direction, n_bytes) * self.slowness)
        self._free_ns[direction] = max(now_ns(), self._free_ns[direction]) + occupied_ns
        self.busy_ns[direction] += occupied_ns
        return self._free_ns[direction] + round(self._cost.latency_ns(direction) * self.slowness)

    def alone_ns(self, direction: DiskDirection, n_bytes: int) -> int:
        """What a request takes that waits for no other, where nothing is slow."""
        if self._cost is None:
            return 0
        return self._cost.occupied_ns(direction, n_bytes) + self._cost.latency_ns(direction)

    async def until(self, end_ns: int) -> None:
        """Let the rest of a booked request pass."""
        if end_ns:
            self.late_ns += max(0, now_ns() - end_ns)
            await wait_until_ns(end_ns)
