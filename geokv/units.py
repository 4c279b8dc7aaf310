"""Quantities as people write them (``100G``, ``4GiB``, ``0.1%``) and as code uses them.

Rates are bits per second (SI prefixes), sizes are bytes (SI or IEC prefixes),
times are seconds, and everything inside the lab is an integer: ns, bit/s, bytes.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_US = 1_000

_NUMBER = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ/%]*)\s*$")
_SI = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_IEC = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_TIME = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def _split(text: str, what: str, example: str) -> tuple[float, str]:
    match = _NUMBER.match(text)
    if not match:
        raise ValueError(f"must be a {what} such as {example}, got {text!r}")
    return float(match[1]), match[2]


def parse_rate(value: object) -> int:
    """Bits per second from ``100G``, ``100Gbit/s``, ``300 Mbps`` or a plain number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"must be a rate such as 100G, got {value!r}")
    if not isinstance(value, str):
        return round(value)
    number, unit = _split(value, "rate", "100G, 100Gbit/s or 300Mbps")
    prefix = re.sub(r"(bit/s|bps|b/s|bit)$", "", unit)
    if prefix not in _SI:
        raise ValueError(f"unknown unit {unit!r} of a rate (bits per second: k, M, G, T)")
    return round(number * _SI[prefix])


def parse_size(value: object) -> int:
    """Bytes from ``4GiB``, ``512MB``, ``64K`` (taken as KiB, as tools do) or a plain number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"must be a size such as 4GiB, got {value!r}")
    if not isinstance(value, str):
        return round(value)
    number, unit = _split(value, "size", "4GiB, 512MB or 64K")
    if unit in {"K", "k", "M", "G", "T"}:
        return round(number * _IEC[unit.upper() + "i"])
    prefix = unit.removesuffix("B")
    scale = _IEC.get(prefix) or _SI.get(prefix)
    if scale is None:
        raise ValueError(f"unknown unit {unit!r} of a size (bytes: KiB, MiB, GiB, kB, MB, GB)")
    return round(number * scale)


def parse_seconds(value: object) -> float:
    """Seconds from ``50ms``, ``10us``, ``2s``, ``1min`` or a plain number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"must be a time such as 50ms, got {value!r}")
    if not isinstance(value, str):
        return float(value)
    number, unit = _split(value, "time", "50ms, 10us or 2s")
    if unit and unit not in _TIME:
        raise ValueError(f"unknown unit {unit!r} of a time (ns, us, ms, s, min, h)")
    return number * _TIME[unit] if unit else number


def parse_fraction(value: object) -> float:
    """A share between 0 and 1 from ``0.1%``, ``1e-5`` or a plain number."""
    if isinstance(value, str) and value.strip().endswith("%"):
        return float(value.strip()[:-1]) / 100
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"must be a share such as 0.1% or 0.001, got {value!r}")
    return float(value)


Rate = Annotated[int, BeforeValidator(parse_rate)]
Size = Annotated[int, BeforeValidator(parse_size)]
Seconds = Annotated[float, BeforeValidator(parse_seconds)]
Fraction = Annotated[float, BeforeValidator(parse_fraction)]


def show_size(size_bytes: float) -> str:
    """``1.5 GiB``, three significant digits."""
    for scale, prefix in ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.3g} {prefix}B"
    return f"{size_bytes:.0f} B"
