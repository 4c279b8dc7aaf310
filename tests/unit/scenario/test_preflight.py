"""What a scenario asks of model, profile and pools is refused before anything is made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geokv.errors import ConfigError
from geokv.preflight import preflight
from geokv.scenario import load_scenario


def test_shipped_scenarios_fit() -> None:
    for name in ("distance_ttft", "distance_pagewise", "smoke"):
        assert preflight(load_scenario(name)).kv_bytes_per_token == 131072


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("deployment.stands_for=gpt-9@abacus", "deployment.stands_for: unknown GPU profile"),
        ("deployment.byte_scale=129", "deployment.byte_scale: 129 leaves 1016 bytes per token"),
        ("deployment.layer_groups=200", "deployment.layout.groups: must be ≤"),
        ("workload.prefix_tokens=16384", "workload.prefix_tokens: prefix, question and answer"),
        ("deployment.device_bytes=1GiB", "deployment.device_bytes: 1 GiB is too small"),
        ("deployment.dram_bytes=512MiB", "deployment.dram_bytes: 512 MiB is too small"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(change: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        preflight(load_scenario("distance_ttft", [change]))
    assert caught.value.message.startswith(said)


def test_synthetic_content_is_judged_by_its_own_size() -> None:
    synthetic = "deployment.content=synthetic"
    for fits in ("deployment.byte_scale=1024", "deployment.layer_groups=8"):
        preflight(load_scenario("distance_ttft", [synthetic, fits]))
    with pytest.raises(ConfigError, match="1024 leaves 128 bytes per token"):
        preflight(
            load_scenario(
                "distance_ttft",
                [synthetic, "deployment.byte_scale=1024", "deployment.layer_groups=8"],
            )
        )


def test_a_model_folder_is_judged_by_its_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"deployment\.model: .*config\.json: cannot be read"):
        preflight(load_scenario("smoke", [f"deployment.model={tmp_path}"]))
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["FooForCausalLM"]}))
    with pytest.raises(ConfigError, match=r"deployment\.model: .*FooForCausalLM"):
        preflight(load_scenario("smoke", [f"deployment.model={tmp_path}"]))
