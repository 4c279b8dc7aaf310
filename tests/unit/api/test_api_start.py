"""What run and start refuse before anything is made: the same as the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geokv import ConfigError, Scenario, run, start


@pytest.mark.parametrize("call", [run, start])
@pytest.mark.parametrize(
    ("changes", "pace", "said"),
    [
        ({}, "fast", "pace: must be a factor such as 1x, 0.5x or 10x, got 'fast'"),
        ({}, True, "pace: must be a factor such as 1x, 0.5x or 10x, got True"),
        ({}, 0.001, "pace: must be 0.01 to 1000 times real time, got 0.001"),
        ({}, "2000x", "pace: must be 0.01 to 1000 times real time, got 2000"),
        ({}, float("nan"), "pace: must be 0.01 to 1000 times real time, got nan"),
        ({"clock": "wall"}, 1, "pace: the wall clock goes at its own pace"),
    ],
)
def test_a_pace_is_checked_as_the_command_does(
    call: Callable[..., Any], changes: dict[str, Any], pace: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        call(Scenario("live").with_(changes), pace=pace, progress=False, root=tmp_path / "made")
    assert said in caught.value.message
    assert not (tmp_path / "made").exists()


def test_what_start_is_given_is_checked_before_it_returns(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no scenario 'livid'"):
        start("livid", root=tmp_path)
    small = Scenario("smoke").with_({"deployment.device_bytes": "1MiB"})
    with pytest.raises(ConfigError, match=r"deployment\.device_bytes: 1 MiB is too small"):
        start(small, root=tmp_path / "made", live=True)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with pytest.raises(ConfigError, match="used"):
        start("smoke", tmp_path / "used")
    assert not (tmp_path / "made").exists()
