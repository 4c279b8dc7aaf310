from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from geokv.engine.profile import (
    Attention,
    CopyCost,
    Curve,
    FitError,
    GpuProfile,
    Watts,
    WaveCost,
    known_profiles,
    load_profile,
    parts_of,
)
from geokv.errors import ConfigError, EngineError

H100 = "llama-3.1-8b@h100-sxm"


def kernel(side: int = 8, tile: int = 4, context_tile: int = 1) -> Attention:
    """Fixed: 1 s, a second more per 8 blocks; first wave 0.5 s per token, later ones 0.25 s."""
    return Attention(
        side_by_side=side,
        tile_tokens=tile,
        context_tile=context_tile,
        fixed_s=Curve(at=(0, 8), seconds=(1.0, 2.0)),
        wave_s=WaveCost(at=(1, 2), s_per_token=(0.5, 0.25)),
    )


def toy(one_launch: bool = False) -> GpuProfile:
    """Two layers, four heads; 0.1 s per token in the layers, 1 s per row in the head."""
    return GpuProfile(
        name="toy@toy",
        kind="fitted",
        model="toy",
        device="toy",
        tensor_parallel=2,
        layers=2,
        heads=4,
        decode_blocks=2,
        kv_bytes_per_token=8,
        weights_bytes=100,
        batch_tokens=8,
        layers_s=Curve(at=(0, 10), seconds=(0.0, 1.0)),
        head_s=Curve(at=(0, 1), seconds=(0.0, 1.0)),
        prefill_attention=kernel(),
        decode_attention=kernel(tile=1),
        one_launch=one_launch,
        copy_cost=CopyCost(operation_s=2.0, bytes_per_s=5.0, source="toy"),
        watts=Watts(idle=1, prefill=3, decode=2, range="idle 1-2", source="toy"),
        fit_error={"toy": FitError(points=1, median=0, p95=0)},
        sources=("toy",),
    )


def test_a_curve_is_straight_between_and_beyond_its_knots() -> None:
    curve = Curve(at=(1, 10, 20), seconds=(1.0, 10.0, 40.0))
    assert [curve(n) for n in (0, 1, 4, 10, 15, 20, 30)] == [1, 1, 4, 10, 25, 40, 70]


def test_waves_cost_what_lies_between_their_knots_and_stay_level_after() -> None:
    assert WaveCost(at=(1, 4), s_per_token=(4.0, 1.0)).each == (4.0, 3.0, 2.0, 1.0)
    assert WaveCost(at=(1,), s_per_token=(4.0,)).each == (4.0,)


def test_a_launch_takes_its_blocks_and_the_longest_walk_of_each_wave() -> None:
    # 10 new on 20: tiles walk 24, 28 and all 30. Four heads: 12 blocks, two waves of 8,
    # of which the first starts with the walk of 30, the second (block 8) with that of 24.
    attention = kernel()
    assert attention.tiles(10, 20) == [24, 28, 30]
    assert attention.waves([24, 28, 30], 4) == (12, [30, 24])
    assert attention.seconds([24, 28, 30], 4) == pytest.approx(1 + 12 / 8 + 0.5 * 30 + 0.25 * 24)
    # Walks are read in whole tiles of context.
    assert kernel(context_tile=64).waves([65, 1], 8) == (16, [128, 64])
    # Blocks that do not divide a wave: 3 sequences of 3 blocks; block 8 is the third's.
    assert attention.waves([5, 9, 7], 3) == (9, [9, 5])
    # More waves than knots: the rest costs as the last.
    assert attention.seconds([10, 10, 10], 8) == pytest.approx(1 + 3 + 5.0 + 2.5 + 2.5)


def test_a_tile_never_walks_beyond_its_chunk() -> None:
    assert kernel().tiles(1, 7) == [8]
    assert kernel().tiles(4, 0) == [4]
    assert kernel().tiles(5, 3) == [7, 8]


def test_a_step_adds_layers_attention_and_head() -> None:
    # Chunk of 4 on 4: one tile, 4 blocks; decode of context 6: 2 blocks.
    prefill, decode = 1 + 4 / 8 + 0.5 * 8, 1 + 2 / 8 + 0.5 * 6
    assert toy().step_s([(4, 4)], (), 0) == pytest.approx(0.4 + 2 * prefill)
    assert toy().step_s((), [6], 1) == pytest.approx(0.1 + 2 * decode + 1)
    assert toy().step_s([(4, 4)], [6], 2) == pytest.approx(0.5 + 2 * (prefill + decode) + 2)


def test_one_launch_runs_decodes_as_tiles_of_the_prefill_kernel() -> None:
    together = 1 + 8 / 8 + 0.5 * 8
    assert toy(one_launch=True).step_s([(4, 4)], [6], 0) == pytest.approx(0.5 + 2 * together)
    alone = toy(one_launch=True).step_s((), [6], 0)
    assert alone == toy().step_s((), [6], 0)


def test_long_prompts_are_charged_in_the_passes_a_server_makes() -> None:
    one = toy()
    parts = [one.step_s([(8, 0)], (), 0), one.step_s([(8, 8)], (), 0), one.step_s([(3, 16)], (), 1)]
    assert one.prefill_s(19) == pytest.approx(sum(parts))
    assert one.decode_s([3, 5]) == one.step_s((), [3, 5], 2)


def test_each_gpu_copies_its_share_at_the_same_time() -> None:
    assert toy().copy_s(100, 3) == pytest.approx(3 * 2.0 + 100 / (2 * 5.0))


def test_senseless_questions_are_refused() -> None:
    for call in (
        lambda: toy().prefill_s(0, 5),
        lambda: toy().prefill_s(5, -1),
        lambda: toy().decode_s([]),
        lambda: toy().decode_s([4, 0]),
        lambda: toy().step_s([(0, 4)], [4], 1),
    ):
        with pytest.raises(EngineError):
            call()


@pytest.mark.parametrize("name", known_profiles())
def test_every_profile_is_finite_positive_and_monotonic(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert profile.sources and profile.fit_error
    assert profile.watts.idle < profile.watts.decode <= profile.watts.prefill
    limit = 1e4
    new = [profile.prefill_s(n, 1000) for n in (1, 2, 63, 64, 65, 200, 2047, 2048, 2049, 9000)]
    cached = [profile.prefill_s(200, m) for m in (0, 1, 63, 64, 65, 1000, 8192, 100_000)]
    batch = [profile.decode_s([500] * n) for n in (1, 2, 3, 8, 9, 33, 64, 65, 256, 300)]
    context = [profile.decode_s([n, 700, n]) for n in (1, 64, 65, 700, 701, 10_000, 131_072)]
    chunks = [profile.step_s([(64, 0)] * n, [], 1) for n in range(1, 12)]
    joined = [profile.step_s([(300, 900)], [2000] * n, 1) for n in range(12)]
    rows = [profile.step_s([(300, 0)], (), n) for n in (0, 1, 2, 64, 300)]
    for series in (new, cached, batch, context, chunks, joined, rows):
        assert all(0 < a <= b < limit for a, b in pairwise(series)), series
    # A hit is worth having: most of a long prompt is spared.
    assert profile.prefill_s(128, 8192) < profile.prefill_s(8320) / 3


@pytest.mark.parametrize("device", ["h100-sxm", "a100-80g", "h200-sxm"])
def test_tensor_parallel_divides_what_it_must(device: str) -> None:
    two, four = (load_profile(f"llama-3.1-70b-tp{ways}@{device}") for ways in (2, 4))
    assert (two.heads, four.heads) == (32, 16)
    assert two.kv_bytes_per_token == four.kv_bytes_per_token == 327_680
    assert two.weights_bytes == four.weights_bytes
    assert four.watts.prefill == 2 * two.watts.prefill
    assert four.watts.range.startswith(f"idle {4 * int(load_idle(device)):g}-")
    # Large passes gain most of the two, all-reduces and launches keep the rest.
    assert 1.4 < two.prefill_s(8192) / four.prefill_s(8192) < 2.0
    assert 1.2 < two.decode_s([512] * 8) / four.decode_s([512] * 8) < 2.0
    free = two.copy_s(2**30, 0)
    assert four.copy_s(2**30, 0) == pytest.approx(free / 2)


def load_idle(device: str) -> float:
    """Lower end of one board's idle range."""
    said = load_profile(f"llama-3.1-8b@{device}").watts.range
    return float(said.removeprefix("idle ").split("-")[0])


def test_h100_profile_has_plausible_orders() -> None:
    h100 = load_profile(H100)
    assert h100.kv_bytes_per_token == 131_072
    cold, hit = h100.prefill_s(8320), h100.prefill_s(128, 8192)
    # 16.06 GFLOP per token dense: 8,320 tokens at the 989 TFLOP/s peak are 135 ms.
    assert 0.135 < cold < 0.5
    # Weights at 3.35 TB/s are 4.8 ms, for any step.
    assert 0.0048 < hit < cold / 10
    assert 0.0048 < h100.decode_s([128]) < h100.decode_s([8192]) < hit
    assert h100.decode_s([1024] * 8) < 8 * h100.decode_s([1024])


def test_fast_devices_are_faster_and_mha_costs_more_cache() -> None:
    l4, l40s, h100, h200 = (
        load_profile(f"qwen2.5-7b@{device}") for device in ("l4", "l40s", "h100-sxm", "h200-sxm")
    )
    assert l4.prefill_s(4096) > l40s.prefill_s(4096) > h100.prefill_s(4096)
    # 15.2 GB of weights at 300 GB/s are 51 ms; an H200 differs from an H100 by memory alone.
    assert 0.0507 < l4.decode_s([128]) < 0.07
    assert h200.decode_s([8192]) < h100.decode_s([8192])
    mha, gqa = load_profile("llama-2-7b@rtxpro6000"), load_profile("mistral-7b@rtxpro6000")
    assert mha.kv_bytes_per_token == 4 * gqa.kv_bytes_per_token
    assert mha.decode_s([4096] * 32) > 1.5 * gqa.decode_s([4096] * 32)


@pytest.mark.parametrize(
    ("n_bytes", "gb_per_s", "tolerance"),
    [(64 * 2**10, 4, 0.1), (256 * 2**10, 13, 0.1), (16 * 2**20, 49, 0.03)],
)
def test_copy_cost_reproduces_lmcache(n_bytes: int, gb_per_s: float, tolerance: float) -> None:
    seconds = load_profile(H100).copy_s(n_bytes, 1)
    assert n_bytes / seconds / 1e9 == pytest.approx(gb_per_s, rel=tolerance)


def test_page_wise_copies_pay_per_operation() -> None:
    h100 = load_profile(H100)
    one, many = h100.copy_s(2**30, 1), h100.copy_s(2**30, 512)
    assert many - one == pytest.approx(511 * 14e-6)


def test_unknown_profiles_name_the_known_ones(tmp_path: Path) -> None:
    assert H100 in known_profiles()
    # Weights that do not fit, and GPUs whose coupling nobody measured, are no profiles.
    assert "bloom-176b-tp8@l4" not in known_profiles()
    assert "llama-3.1-70b-tp4@l40s" not in known_profiles()
    with pytest.raises(EngineError, match=f"(?s)unknown GPU profile 'h200'.*{H100}"):
        load_profile("h200")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_profile(str(tmp_path / "none.yaml"))


def test_a_wrong_profile_file_is_refused_with_its_path(tmp_path: Path) -> None:
    data = load_profile(H100).model_dump(mode="json")
    bad = tmp_path / "bad.yaml"

    def written() -> str:
        bad.write_text(yaml.safe_dump(data))
        return str(bad)

    data["layers_s"]["at"] = data["layers_s"]["at"][:-1]
    data["colour"] = "red"
    with pytest.raises(ConfigError, match=r"colour: unknown key") as error:
        load_profile(written())
    assert "layers_s" in str(error.value)
    del data["colour"]
    data["layers_s"] = {"at": [2, 2], "seconds": [1.0, 1.0]}
    with pytest.raises(ConfigError, match="must increase"):
        load_profile(written())
    data["layers_s"] = {"at": [1, 2], "seconds": [1.0, 0.5]}
    with pytest.raises(ConfigError, match="must not fall"):
        load_profile(written())
    data["layers_s"] = {"at": [1, 2], "seconds": [1.0, 1.5]}
    data["prefill_attention"]["wave_s"]["at"] = [2, 3]
    with pytest.raises(ConfigError, match="first knot is wave 1"):
        load_profile(written())


def test_a_profile_file_outside_the_package_can_be_used(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump(load_profile(H100).model_dump(mode="json")))
    assert load_profile(str(own)) == load_profile(H100)


def test_a_name_says_model_gpus_and_device(tmp_path: Path) -> None:
    shape, ways, device = parts_of("llama-3.1-8b-tp4@a100-80g") or pytest.fail("not known")
    assert (shape.hidden, shape.heads // shape.kv_heads, ways) == (4096, 4, 4)
    assert device.peak_flops == 312e12
    # Queries and output 1 each, keys and values a quarter each, three MLP matrices of 3.5.
    assert shape.matrix_operations == 2 * (1 + 1 + 0.25 + 0.25 + 3 * 3.5)
    assert parts_of(str(tmp_path / "own.yaml")) is None


def test_reading_a_profile_does_not_load_torch() -> None:
    code = (
        "import sys; from geokv.engine import load_profile; load_profile('llama-3.1-8b@h100-sxm');"
        "load_profile('qwen2.5-7b@l4'); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == 0
