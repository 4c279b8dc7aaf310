from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from geokv.engine.fit.__main__ import main, write
from geokv.engine.fit.attention import Form, Group, fit_attention
from geokv.engine.fit.compare import attention_seconds, compare, parted
from geokv.engine.fit.dense import MOST_MEMORY_SHARE, Shaped, fit_efficiencies, fit_stack
from geokv.engine.fit.measured import Dense, Launch, Measurements, Pass, Served
from geokv.engine.fit.replay import replay
from geokv.engine.fit.rows import BAR_DEVICES, Row, missed
from geokv.engine.fit.solve import Array, error_of, fit_curve, non_negative, relative, rising
from geokv.engine.fit.sources import MEASURED_DEVICES, Sources
from geokv.engine.profile import Attention, known_profiles, load_profile
from geokv.engine.profile_parts import PROFILES, Device, Kernels, ModelShape, names, part
from geokv.engine.profile_roofline import compose, layer_s, move
from geokv.errors import ConfigError, EngineError

H100 = "llama-3.1-8b@h100-sxm"


def measured_folder() -> Path | None:
    """Public GPU measurements: GEOKV_TRACES, or shared/traces beside the checkout."""
    named = os.environ.get("GEOKV_TRACES")
    folder = Path(named) if named else Path(__file__).parents[4] / "shared" / "traces"
    inner = folder / "gpu_profiles"
    return inner if inner.is_dir() else None


needs_traces = pytest.mark.skipif(
    measured_folder() is None,
    reason="no GPU measurements: set GEOKV_TRACES to a folder with gpu_profiles/",
)


@pytest.fixture(scope="module")
def files() -> Measurements:
    folder = measured_folder()
    assert folder is not None
    return Measurements(folder)


@pytest.fixture(scope="module")
def sources(files: Measurements) -> Sources:
    return Sources.read(files)


@pytest.fixture(scope="module")
def rows(files: Measurements, sources: Sources) -> list[Row]:
    kernels = {name: part(Kernels, name) for name in MEASURED_DEVICES}
    return compare(files, sources, kernels, load_profile)


def test_least_squares_stay_at_or_above_zero() -> None:
    # Unconstrained the second would be -1; the best with it at zero is 1.5.
    features = np.array([[1.0, 0.0], [1.0, 1.0]])
    assert non_negative(features, np.array([2.0, 1.0])) == pytest.approx([1.5, 0.0])
    assert non_negative(features, np.array([2.0, 5.0])) == pytest.approx([2.0, 3.0])
    assert non_negative(features, np.array([-2.0, -5.0])) == pytest.approx([0.0, 0.0])


def test_relative_error_is_what_is_least() -> None:
    # One constant for 1 and 100: absolutely 50.5 is best, relatively about 1.
    one = np.ones((2, 1))
    found = relative(one, np.array([1.0, 100.0]))
    assert found[0] == pytest.approx((1 + 1 / 100) / (1 + 1 / 100**2))


def test_rising_lines_are_recovered_and_never_fall() -> None:
    at = np.arange(1.0, 41.0)
    truth = np.interp(at, [1, 10, 20], [2.0, 3.0, 7.0]) + np.maximum(at - 20, 0) * 0.4
    found = fit_curve(at, truth, (1, 10, 20))
    assert found.seconds == pytest.approx((2.0, 3.0, 7.0))
    assert found(40) == pytest.approx(15.0)
    falling = fit_curve(at, 50 - at, (1, 20, 40))
    assert falling.seconds == tuple(sorted(falling.seconds))
    assert rising((1, 3, 5), np.array([0.0, 2.0, 7.0])).tolist() == [
        [1.0, 0.0, 0.0], [1.0, 0.5, 0.0], [1.0, 1.0, 2.0],
    ]  # fmt: skip


def test_errors_are_relative_medians_and_percentiles() -> None:
    error = error_of([1.1] * 19 + [3.0], [1.0] * 19 + [2.0])
    assert (error.points, error.median) == (20, 0.1)
    assert error.p95 == pytest.approx(0.12)


def timed(kernel: Attention, form: Form, launch: Launch) -> Launch:
    """The same launch of four heads, as long as ``kernel`` takes."""
    return replace(launch, seconds=kernel.seconds(form.walks(launch), 4))


def test_an_attention_kernel_is_recovered_from_its_own_launches() -> None:
    form = Form(8, 4, 16, (1, 8, 32), (1, 2, 4))
    truth = form.attention(np.array([1.0, 2.0, 3.0, 0.5, 0.25, 0.125]))
    launches = [
        timed(truth, form, Launch((new, cached), decode, 0.0))
        for new in (1, 4, 5, 17, 40)
        for cached in (0, 16, 100, 333)
        for decode in ((), (50,), (7, 900))
    ]  # fmt: skip
    found = fit_attention(form, [Group(launches, 4)])
    assert found.fixed_s.seconds == pytest.approx(truth.fixed_s.seconds, rel=1e-3)
    assert found.wave_s.s_per_token == pytest.approx(truth.wave_s.s_per_token, rel=1e-3)


def test_roofline_efficiencies_are_recovered_from_their_own_times() -> None:
    shape, device = part(ModelShape, "llama-3.1-8b"), part(Device, "a100-80g")
    truth = part(Kernels, "a100-80g").model_copy(
        update={"compute_share": 0.5, "memory_share": 0.8, "layer_s": 40e-6}
    )
    tokens = np.array([1.0, 16.0, 64.0, 256.0, 512.0, 2048.0, 4096.0])
    points = []
    for ways in (1, 4):
        untimed = Shaped(shape, ways, Dense(tokens, tokens))
        points.append(replace(untimed, dense=Dense(tokens, untimed.predicted(device, truth))))
    found = fit_efficiencies(device, truth.model_copy(update={"memory_share": 0.5}), points)
    assert found.compute_share == pytest.approx(0.5, rel=0.02)
    assert found.memory_share == pytest.approx(0.8, rel=0.02)
    assert found.memory_share <= MOST_MEMORY_SHARE


def test_a_layer_takes_the_longer_of_flops_and_bytes() -> None:
    """Mistral-7B on one A100, by hand from its config.json."""
    shape, device = part(ModelShape, "mistral-7b"), part(Device, "a100-80g")
    ideal = part(Kernels, "a100-80g").model_copy(
        update={"compute_share": 1.0, "memory_share": 1.0, "layer_s": 0.0}
    )
    weights = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336
    assert weights == sum(outputs * inputs for outputs, inputs in shape.matrices(1))
    one = layer_s(1, shape, 1, device, ideal)
    assert one == pytest.approx(2 * weights / 2.039e12, rel=2e-3)
    many = layer_s(8192, shape, 1, device, ideal)
    pointwise = 8192 * shape.pointwise_bytes(1) / 2.039e12
    assert many == pytest.approx(2 * 8192 * weights / 312e12 + pointwise)
    assert shape.pointwise_bytes(1) == 2 * (10 * 4096 + 2 * (32 + 8) * 128 + 3 * 14336)
    assert shape.kv_bytes_per_token == 2 * 32 * 8 * 128 * 2


def test_gpus_that_share_layers_wait_for_two_all_reduces_of_each() -> None:
    shape, device = part(ModelShape, "llama-3.1-8b"), part(Device, "h200-sxm")
    kernels = part(Kernels, "h100-sxm")
    reduce = kernels.all_reduce[2](1024 * 4096 * 2)
    one = layer_s(1024, shape, 2, device, kernels) + 2 * reduce
    assert compose("llama-3.1-8b", 2, "h200-sxm").layers_s(1024) == pytest.approx(32 * one)
    with pytest.raises(EngineError, match="no profile of bloom-176b on 1 × h200-sxm"):
        compose("bloom-176b", 1, "h200-sxm")


def test_attention_moves_to_a_device_by_its_speed_and_memory() -> None:
    kernels, h100 = part(Kernels, "h100-sxm"), part(Device, "h100-sxm")
    half = h100.model_copy(
        update={"multiprocessors": 66, "attention_flops": 335e12 / 4, "bytes_per_s": 3.35e12 / 4}
    )
    old = (kernels.prefill_attention, kernels.decode_attention)
    for was, now in zip(old, move(*old, 128, h100, half), strict=True):
        # Half the blocks at a time, each at half the speed: a quarter of the whole.
        assert now.side_by_side == 66
        assert now.wave_s.s_per_token == pytest.approx([2 * s for s in was.wave_s.s_per_token])
        assert now.fixed_s.seconds == was.fixed_s.seconds
        assert now.fixed_s.at[-1] == was.fixed_s.at[-1] // 2
    wide = move(*old, 256, h100, h100)[0]
    assert wide.wave_s.s_per_token[0] == pytest.approx(2 * old[0].wave_s.s_per_token[0])


@pytest.mark.parametrize("name", names("models"))
def test_a_shape_has_as_many_parameters_as_it_says(name: str) -> None:
    shape = part(ModelShape, name)
    matrices = sum(outputs * inputs for outputs, inputs in shape.matrices(1))
    embeddings = shape.vocabulary * shape.hidden * (1 if name.startswith("bloom") else 2)
    # Norms and biases are the rest.
    assert shape.layers * matrices + embeddings == pytest.approx(shape.parameters, rel=1e-4)


@pytest.mark.parametrize("name", names("devices"))
def test_a_device_names_a_source_for_every_number(name: str) -> None:
    device = part(Device, name)
    assert device.kernels in MEASURED_DEVICES
    data = device.model_dump()
    del data["sources"]["bytes_per_s"]
    with pytest.raises(ValueError, match="no source for bytes_per_s"):
        Device.model_validate(data)
    with pytest.raises(EngineError, match="unknown device 'v100'"):
        part(Device, "v100")


def test_an_end_to_end_stack_is_recovered() -> None:
    device, start = part(Device, "h100-sxm"), load_profile("llama-2-70b-tp8@h100-sxm")
    passes = [
        Pass(kind, (tokens, batch, 1), batch, tokens, seconds)
        for kind, batch, tokens, seconds in (
            *(("prefill", 1, n, start.prefill_s(n)) for n in (128, 512, 1024, 2048, 4096, 8192)),
            *(("decode", n, 600, start.decode_s([600] * n)) for n in (1, 16, 32, 64)),
            ("decode", 1, 8000, start.decode_s([8000])),
        )
    ]
    found = fit_stack(passes, start, device)
    for one in passes:
        again = (
            found.prefill_s(one.tokens)
            if one.kind == "prefill"
            else found.decode_s([one.tokens] * one.batch)
        )
        assert again == pytest.approx(one.seconds, rel=0.02)


def test_runs_are_held_out_whole_and_between_others() -> None:
    passes = [
        Pass("prefill", (tokens, 1, repeat), 1, tokens, 1.0)
        for tokens in (128, 256, 512, 1024)
        for repeat in (1, 1, 1)
    ]
    first, second = parted(passes)
    assert {one.tokens for one in first} == {128, 512, 1024}
    assert {one.tokens for one in second} == {256}
    assert len(first) + len(second) == len(passes)


def test_a_replay_charges_every_step_once() -> None:
    profile = load_profile(H100)
    requests = [Served(3000, 2, 0.0, 0.0, 0.0), Served(100, 1, 0.0, 0.0, 0.0)]
    step1 = profile.step_s([(2048, 0)], [], 0)
    step2 = profile.step_s([(952, 2048), (100, 0)], [], 2)
    step3 = profile.step_s([], [3001], 1)
    long, short = replay(profile, requests)
    assert long.first_s == short.first_s == short.last_s == pytest.approx(step1 + step2)
    assert long.last_s == pytest.approx(step1 + step2 + step3)
    # Nobody computes before the first request is there.
    late = replay(profile, [Served(10, 1, 5.0, 0.0, 0.0)])
    assert late[0].first_s == pytest.approx(5.0 + profile.prefill_s(10))


def test_a_miss_of_the_bar_is_found() -> None:
    def row(counts: bool, predicted: Array) -> Row:
        measured = np.ones(len(predicted))
        return Row("h100-sxm", "prefill", "s", "w", "p", predicted, measured, None, counts)

    good = row(True, np.array([1.05] * 19 + [2.0] * 1))
    shifted, tail = row(True, np.full(20, 0.85)), row(True, np.array([1.0] * 18 + [1.4] * 2))
    assert missed([good]) == []
    assert missed([shifted, good, tail]) == [shifted, tail]
    assert missed([row(False, np.full(20, 9.0))]) == []


def test_files_that_are_missing_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=r"v0_H100.*cannot be read"):
        Sources.read(Measurements(tmp_path))
    assert main([str(tmp_path)]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert main([]) == 2
    assert "PATH_TO_gpu_profiles" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"bench_RTXPRO6000.*cannot be read"):
        Measurements(tmp_path).bench("Llama-3.1-8B")


@needs_traces
def test_the_profiles_meet_their_bar(rows: list[Row]) -> None:
    assert missed(rows) == []
    judged = {(row.device, row.phase) for row in rows if row.counts}
    assert judged == {(device, phase) for device in BAR_DEVICES for phase in ("prefill", "decode")}
    assert sum(row.counts for row in rows) >= 40
    assert sum(row.error.points for row in rows) > 75_000


@needs_traces
def test_fits_hold_for_points_they_have_not_seen(rows: list[Row]) -> None:
    held = [row for row in rows if row.counts and row.held_out]
    assert len(held) >= 40
    for row in held:
        assert row.held_out is not None
        assert row.held_out.median <= 0.10, row.what
        # A fifth more in the tail than the fit to all: no curve chases single points.
        assert row.held_out.p95 <= 0.30, row.what


@needs_traces
def test_a_real_server_is_predicted_request_by_request(rows: list[Row]) -> None:
    """vLLM on Llama-3.1-8B: no constant was chosen by looking at this run."""
    served = {row.what: row.error for row in rows if row.phase == "served"}
    assert served["llama-3.1-8b, TPOT per request"].median < 0.05
    assert served["llama-3.1-8b, E2E per request"].p95 < 0.10


@needs_traces
def test_refitting_writes_the_committed_files(
    files: Measurements, sources: Sources, tmp_path: Path
) -> None:
    write(files, sources, tmp_path)
    written = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.yaml"))
    committed = [f"{kind}/{name}.yaml" for kind in ("fitted", "kernels") for name in names(kind)]
    assert written == committed
    assert {
        Path(name).name.removesuffix(".yaml") for name in written if name.startswith("fitted")
    } <= set(known_profiles())
    for name in written:
        again = yaml.safe_load((tmp_path / name).read_text())
        here = yaml.safe_load((PROFILES / name).read_text())
        assert_close(again, here, name)


def assert_close(found: object, committed: object, path: str) -> None:
    """Alike but for the last digits that another machine's algebra may change."""
    if isinstance(committed, dict) and isinstance(found, dict):
        assert found.keys() == committed.keys(), path
        for key, value in committed.items():
            assert_close(found[key], value, f"{path}.{key}")
    elif isinstance(committed, list) and isinstance(found, list):
        assert len(found) == len(committed), path
        for index, value in enumerate(committed):
            assert_close(found[index], value, f"{path}.{index}")
    elif isinstance(committed, float):
        assert found == pytest.approx(committed, rel=1e-2, abs=2e-3), path
    else:
        assert found == committed, path


@needs_traces
def test_units_of_each_source_are_seconds(files: Measurements) -> None:
    """One number of each file, read off it by eye."""
    assert files.v0_operators("8B_tp1")["lm_head"][0] == pytest.approx(366.3e-6, rel=1e-3)
    prefill, decode = files.v0_attention()
    assert (prefill[0].prefill, prefill[0].seconds) == ((32, 0), pytest.approx(5.312e-6))
    assert decode[-1].prefill is None and len(decode[-1].decode) > 1
    vllm = files.vllm_attention("meta-llama_Llama-3.1-8B_bf16_tp1")
    assert (vllm[0].decode, vllm[0].seconds) == ((16,), pytest.approx(8.35233e-6))
    reduce = files.vidur_all_reduce("h100", 8)
    assert (reduce.tokens[0], reduce.seconds[0]) == (2048, pytest.approx(37e-6))
    layer = 8 + 110 + 6 + 92 + 8 + 580 + 22 + 290 + 2
    dense = files.vidur_dense("a100", "meta-llama_Llama-2-70b-hf", 1, layers=80)
    assert (dense.tokens[0], dense.seconds[0]) == (1, pytest.approx((80 * layer + 3) * 1e-6))
    first = files.splitwise("llama2-70b", "a100-80gb", 2)[0]
    assert (first.batch, first.tokens) == (1, 512)
    assert first.seconds == pytest.approx(0.19625, rel=1e-3)
    bench = files.bench("Llama-3.1-8B")
    assert (len(bench), bench[0].prompt, bench[0].queued_s) == (300, 2358, 0.0)
    assert bench[0].first_s == pytest.approx(0.169525, abs=1e-6)


@needs_traces
def test_a_profile_predicts_a_launch_as_the_check_compares_it(files: Measurements) -> None:
    prefill, _ = files.v0_attention()
    profile = load_profile("llama-3.1-70b-tp4@h100-sxm")
    one = prefill[40]
    assert one.prefill is not None
    kernel = profile.prefill_attention
    walks = kernel.tiles(*one.prefill)
    assert attention_seconds(profile, [one]) == [kernel.seconds(walks, 16)]
