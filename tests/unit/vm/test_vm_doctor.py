"""What doctor makes of a host, where the host can be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from geokv.vm import doctor


@pytest.mark.parametrize(("limit", "state"), [(65530, "note"), (2**20 - 1, "note"), (2**20, "ok")])
def test_few_mappings_are_told_with_the_command_that_helps(
    tmp_path: Path, limit: int, state: str
) -> None:
    (tmp_path / "max_map_count").write_text(f"{limit}\n")
    [found] = doctor._mappings(tmp_path / "max_map_count")
    assert found.state == state and not found.needed
    assert f"{limit:,} pieces" in found.said and "vm.max_map_count" in found.said
    assert ("killed" in found.said) == (state == "note")
    assert "sysctl -w vm.max_map_count=1048576" in found.hint


def test_this_host_is_looked_at() -> None:
    limit = int(Path("/proc/sys/vm/max_map_count").read_text())
    assert f"{limit:,}" in doctor._mappings()[0].said
