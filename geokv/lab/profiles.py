"""Link profiles: what a kind of line is like, each number with its source.

The files are ``netem/profiles/<kind>.yaml`` of the checkout. Every number is a mapping
``{value, source}``; a profile without sources is refused.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Generic, Literal, TypeVar

from pydantic import Field

from geokv.config import Strict, load_yaml, validate
from geokv.errors import ConfigError
from geokv.paths import CHECKOUT
from geokv.units import Fraction, Rate, Seconds, Size

Value = TypeVar("Value")
Congestion = Literal["cubic", "bbr", "dctcp", "reno"]
QueueRule = Literal["lossless", "bdp", "router"]


class Sourced(Strict, Generic[Value]):
    """A number and where it comes from."""

    value: Value
    source: str = Field(min_length=8)


class Profile(Strict):
    """One kind of line.

    One-way delay = km × ``us_per_km`` × ``detour`` + ``equipment``.

    Attributes:
        detour: fibre length over straight distance.
        equipment: one-way delay of everything that is not fibre, seconds.
        jitter: half-width of a uniform spread around the one-way delay, seconds.
        rate: line rate including Ethernet headers, bit/s.
        window_bdps: TCP buffers' maximum in bandwidth-delay products.
        window_floor: and never less than this, bytes.
        protection_time: from a cut to the moved route, seconds.
        queue: ``lossless`` holds the sum of ``queue_windows`` full TCP windows (a circuit, whose
            senders are held back rather than dropped); ``bdp`` holds ``queue_bdps`` products and
            never fewer than 1000 packets; ``router`` holds ``queue_bdps`` products beside what is
            on its way, at any rate.
    """

    title: str
    us_per_km: Sourced[float]
    detour: Sourced[float]
    equipment: Sourced[Seconds]
    jitter: Sourced[Seconds]
    rate: Sourced[Rate]
    loss: Sourced[Fraction]
    mtu: Sourced[int]
    congestion: Sourced[Congestion]
    window_bdps: Sourced[float]
    window_floor: Sourced[Size]
    protection_time: Sourced[Seconds]
    queue: Sourced[QueueRule]
    queue_bdps: Sourced[float]
    queue_windows: Sourced[int]


def data_folders(*parts: str) -> list[Path]:
    """Where shipped files are looked for: the checkout beside the package, then here."""
    found = [root.joinpath(*parts) for root in (CHECKOUT, Path.cwd())]
    return [path for path in dict.fromkeys(found) if path.is_dir()]


@cache
def known_profiles() -> tuple[str, ...]:
    """Names of every profile at hand, sorted."""
    names = {
        path.stem for folder in data_folders("netem", "profiles") for path in folder.glob("*.yaml")
    }
    return tuple(sorted(names))


@cache
def load_profile(kind: str) -> Profile:
    """The profile of a kind of line.

    Raises:
        ConfigError: there is none of that name, or its file is not a valid profile.
    """
    for folder in data_folders("netem", "profiles"):
        path = folder / f"{kind}.yaml"
        if path.is_file():
            return validate(Profile, load_yaml(path), str(path))
    known = ", ".join(known_profiles()) or "none found"
    raise ConfigError(
        f"unknown profile {kind!r} (known: {known})",
        "profiles are netem/profiles/*.yaml of the geokv checkout",
    )
