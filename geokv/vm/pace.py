"""A pace for virtual time: how many of its seconds pass in a real one, at most.

The guest's kernel sleeps before it lets time jump (``0003-um-paced-time.patch``). What happens, and
when on the guest's clock, is the same at any pace.
"""

from __future__ import annotations

import re

from geokv.errors import ConfigError

LEAST, MOST = 0.01, 1000.0
_FORM = re.compile(r"^([0-9]*\.?[0-9]+)x?$")


def parse_pace(text: str) -> float:
    """``1x``, ``0.5x``, ``10``.

    Raises:
        ConfigError: no such factor.
    """
    match = _FORM.match(text.strip())
    if match is None:
        raise _no_factor(text)
    return float(match[1])


def check_pace(pace: float | None, clock: str) -> None:
    """Raises ConfigError: out of range, or on a clock that has its own pace."""
    if pace is None:
        return
    if clock != "virtual":
        raise ConfigError(
            f"pace: the {clock} clock goes at its own pace", "leave it out, and ask for live alone"
        )
    if not LEAST <= pace <= MOST:
        raise ConfigError(f"pace: must be {LEAST:g} to {MOST:g} times real time, got {pace:g}")


def read_pace(said: str | float | None, clock: str) -> float | None:
    """The pace that somebody asks for, as ``1x`` or as a number; None is as fast as it goes.

    Raises:
        ConfigError: no such factor, out of range, or on a clock that has its own pace.
    """
    if said is None:
        return None
    if isinstance(said, bool) or not isinstance(said, str | float | int):
        raise _no_factor(said)
    pace = parse_pace(said) if isinstance(said, str) else float(said)
    check_pace(pace, clock)
    return pace


def _no_factor(said: object) -> ConfigError:
    return ConfigError(f"pace: must be a factor such as 1x, 0.5x or 10x, got {said!r}")


def kernel_option(pace: float) -> str:
    """What the guest's kernel is told: thousandths. It is not kept in the command line that a
    guest sees, and so changes nothing there."""
    return f"time-travel-pace={max(1, round(pace * 1000))}"
