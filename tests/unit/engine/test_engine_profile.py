from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from geokv.engine.fit import fit
from geokv.engine.profile import (
    Curve,
    DecodeAttention,
    GpuProfile,
    PrefillAttention,
    known_profiles,
    load_profile,
)
from geokv.errors import ConfigError, EngineError

H100 = "llama-3.1-8b@h100"


def traces() -> Path | None:
    """Public GPU measurements: GEOKV_TRACES, or shared/traces beside the checkout."""
    named = os.environ.get("GEOKV_TRACES")
    folder = Path(named) if named else Path(__file__).parents[4] / "shared" / "traces"
    return folder / "gpu_profiles" if (folder / "gpu_profiles").is_dir() else None


def test_a_curve_is_straight_between_and_beyond_its_knots() -> None:
    curve = Curve(at=(1, 10, 20), seconds=(1.0, 10.0, 40.0))
    assert [curve(n) for n in (0, 1, 4, 10, 15, 20, 30)] == [1, 1, 4, 10, 25, 40, 70]


def test_attention_is_bound_by_the_longest_walk_or_the_total_work() -> None:
    prefill = PrefillAttention(
        fixed_s=1.0, walk_s_per_token=0.5, work_s_per_head_pair=0.01, tail_s_per_token=0.1
    )
    # 2 new on 8 cached: 16 + 3 pairs; work 4 × 19 × 0.01 + 1.0 = 1.76 < walk 5.0.
    assert prefill.seconds(4, 2, 8) == pytest.approx(6.0)
    # 100 new: 5,050 pairs; work 4 × 50.5 + 10 = 212 > walk 50.
    assert prefill.seconds(4, 100, 0) == pytest.approx(213.0)
    decode = DecodeAttention(
        fixed_s=1.0, walk_s_per_token=0.5, work_s_per_head_sequence=0.25, work_s_per_head_token=0.01
    )
    assert decode.seconds(4, [100]) == pytest.approx(1 + 50)
    assert decode.seconds(4, [10] * 50) == pytest.approx(1 + 4 * (0.25 * 50 + 0.01 * 500))


def test_long_prompts_are_charged_in_the_passes_a_server_makes() -> None:
    h100 = load_profile(H100)
    head = h100.head_s(1)
    parts = [h100.prefill_s(2048, done) - head for done in (0, 2048, 4096, 6144)]
    last = h100.prefill_s(128, 8192) - head
    assert h100.prefill_s(8320) == pytest.approx(sum(parts) + last + head)


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
    assert h100.watts.idle < h100.watts.decode < h100.watts.prefill


def test_time_grows_with_tokens_and_with_context() -> None:
    h100 = load_profile(H100)
    new = [h100.prefill_s(n, 1024) for n in range(1, 4097, 64)]
    cached = [h100.prefill_s(64, m) for m in range(0, 100_000, 1000)]
    batch = [h100.decode_s([500] * n) for n in range(1, 256)]
    for series in (new, cached, batch):
        assert all(a <= b for a, b in pairwise(series))


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


def test_senseless_questions_are_refused() -> None:
    h100 = load_profile(H100)
    for call in (
        lambda: h100.prefill_s(0, 5),
        lambda: h100.prefill_s(5, -1),
        lambda: h100.decode_s([]),
        lambda: h100.decode_s([4, 0]),
    ):
        with pytest.raises(EngineError):
            call()


def test_unknown_profiles_name_the_known_ones(tmp_path: Path) -> None:
    assert H100 in known_profiles()
    with pytest.raises(EngineError, match=f"(?s)unknown GPU profile 'h200'.*{H100}"):
        load_profile("h200")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_profile(str(tmp_path / "none.yaml"))
    data = load_profile(H100).model_dump(mode="json")
    data["layers_s"]["at"] = data["layers_s"]["at"][:-1]
    data["colour"] = "red"
    bad = tmp_path / "bad.yaml"
    bad.write_text(yaml.safe_dump(data))
    with pytest.raises(ConfigError, match=r"colour: unknown key") as error:
        load_profile(str(bad))
    assert "layers_s" in str(error.value)
    data["layers_s"] = {"at": [2, 2], "seconds": [1.0, 1.0]}
    bad.write_text(yaml.safe_dump(data))
    with pytest.raises(ConfigError, match="must increase"):
        load_profile(str(bad))


def test_a_profile_file_outside_the_package_can_be_used(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump(load_profile(H100).model_dump(mode="json")))
    assert load_profile(str(own)) == load_profile(H100)


def test_reading_a_profile_does_not_load_torch() -> None:
    code = (
        "import sys; from geokv.engine import load_profile; load_profile('llama-3.1-8b@h100');"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == 0


def test_refitting_gives_the_committed_profile() -> None:
    folder = traces()
    if folder is None:
        pytest.skip("no GPU measurements: set GEOKV_TRACES to a folder with gpu_profiles/")
    refitted, committed = fit(folder), load_profile(H100)
    for name, stated in committed.fit_error.items():
        found = refitted.fit_error[name]
        assert found.points == stated.points
        assert found.median == pytest.approx(stated.median, abs=2e-3)
        assert found.p95 == pytest.approx(stated.p95, abs=5e-3)
    assert committed.fit_error["whole_prefill_cold"].p95 < 0.05
    for new, cached in ((8320, 0), (128, 8192), (1, 0)):
        assert refitted.prefill_s(new, cached) == pytest.approx(
            committed.prefill_s(new, cached), rel=1e-2
        )
    assert type(refitted) is GpuProfile


def test_fitting_without_measurements_says_which_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"v0_H100.*cannot be read"):
        fit(tmp_path)
