"""The pace of virtual time: what people write, and what a kernel is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from geokv.errors import ConfigError
from geokv.vm import Job, Kernel
from geokv.vm.boot import Clock, boot_command
from geokv.vm.pace import check_pace, kernel_option, parse_pace


@pytest.mark.parametrize(
    ("text", "pace"), [("1x", 1.0), ("0.5x", 0.5), ("10", 10.0), (".25x", 0.25), (" 2x ", 2.0)]
)
def test_factors(text: str, pace: float) -> None:
    assert parse_pace(text) == pace


@pytest.mark.parametrize("text", ["", "x", "fast", "-1x", "1xx", "1e3", "1s"])
def test_no_factors(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^pace: must be a factor"):
        parse_pace(text)


def test_limits_and_clocks() -> None:
    check_pace(None, "wall")
    check_pace(0.01, "virtual")
    with pytest.raises(ConfigError, match="goes at its own pace"):
        check_pace(1.0, "wall")
    for pace in (0.0, 0.009, 1001.0):
        with pytest.raises(ConfigError, match=r"must be 0\.01 to 1000"):
            check_pace(pace, "virtual")


def test_a_kernel_is_told_thousandths() -> None:
    assert kernel_option(1.0) == "time-travel-pace=1000"
    assert kernel_option(0.01) == "time-travel-pace=10"
    assert kernel_option(2.5) == "time-travel-pace=2500"


@pytest.mark.parametrize("clock", ["virtual", "wall"])
def test_without_a_pace_the_command_line_is_what_it_was(clock: Clock) -> None:
    kernel = Kernel(Path("/kernel"), "6.12")
    plain = boot_command(kernel, clock, Job(("true",)), 0)
    paced = boot_command(kernel, clock, Job(("true",), pace=2.0), 0)
    assert not any("pace" in word for word in plain)
    assert paced == ([*plain, "time-travel-pace=2000"] if clock == "virtual" else plain)
