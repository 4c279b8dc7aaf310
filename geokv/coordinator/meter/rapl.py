"""Joules of the processor packages, as the kernel's powercap folder has them (Intel, and AMD
since Linux 5.11). Only root may read them since CVE-2020-8694."""

from __future__ import annotations

import re
from pathlib import Path

from geokv.errors import MeterError

POWERCAP = Path("/sys/class/powercap")
_ZONE = re.compile(r"intel-rapl:\d+")
"""A whole package; its cores and memory are zones of their own inside it."""


class Rapl:
    """Sums all packages and unwraps their counters.

    Args:
        folder: where the zones are.

    Raises:
        MeterError: no zone, or none that may be read.
    """

    def __init__(self, folder: Path = POWERCAP) -> None:
        if not folder.is_dir():
            raise MeterError(f"{folder} is not there")
        zones = sorted(zone for zone in folder.iterdir() if _ZONE.fullmatch(zone.name))
        self._files: dict[str, Path] = {}
        self._range_uj: dict[str, int] = {}
        for zone in zones:
            try:
                name = (zone / "name").read_text().strip()
                if not name.startswith("package"):
                    continue
                self._range_uj[zone.name] = int((zone / "max_energy_range_uj").read_text())
                int((zone / "energy_uj").read_text())
            except (OSError, ValueError) as error:
                raise MeterError(f"{zone}/energy_uj cannot be read ({error})") from None
            self._files[zone.name] = zone / "energy_uj"
        if not self._files:
            raise MeterError(f"{folder} has no zone of a processor package")
        self._seen_uj = {name: self._read(name) for name in self._files}
        self._total_uj = 0

    @property
    def zones(self) -> list[str]:
        """Names of the packages that are read."""
        return list(self._files)

    def total_uj(self) -> int:
        """µJ of all packages since this reader was made.

        A counter that is smaller than before has wrapped once; at 500 W and a range of 262 kJ
        that takes 9 minutes, so whoever reads more often than that misses none.

        Raises:
            MeterError: a counter that could be read before cannot be now.
        """
        for name, before in self._seen_uj.items():
            now = self._read(name)
            step = now - before
            self._total_uj += step if step >= 0 else step + self._range_uj[name]
            self._seen_uj[name] = now
        return self._total_uj

    def _read(self, name: str) -> int:
        try:
            return int(self._files[name].read_text())
        except (OSError, ValueError) as error:
            raise MeterError(f"{self._files[name]} cannot be read ({error})") from None
