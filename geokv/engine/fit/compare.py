"""Every measured point at hand against the profile that stands for it.

One function per source of measurements; all of them are here, so that what is judged, and what is
left out, can be read in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from geokv.engine.fit.dense import (
    BYTE_KNOTS,
    LARGEST_BATCH,
    Shaped,
    by_phase,
    fit_dense,
    with_all_reduce,
)
from geokv.engine.fit.kernels import h100_decode, h100_prefill, rtx_decode, rtx_prefill
from geokv.engine.fit.measured import (
    SPLITWISE,
    V0,
    VIDUR,
    VLLM,
    Launch,
    Measurements,
    Pass,
    Served,
)
from geokv.engine.fit.pairs import FITTED, dense_points, fit_pair, head_points
from geokv.engine.fit.replay import replay
from geokv.engine.fit.rows import BAR_PHASES, Row, row
from geokv.engine.fit.sources import (
    A100,
    H100,
    L8,
    L70,
    OLD70,
    RTX,
    V0_HEADS,
    VIDUR_70B,
    VLLM_RUNS,
    Sources,
)
from geokv.engine.profile_cost import GpuProfile
from geokv.engine.profile_parts import Device, Kernels, ModelShape, part, profile_name

EVEN, ODD = slice(0, None, 2), slice(1, None, 2)

Loader = Callable[[str], GpuProfile]


def compare(
    files: Measurements,
    sources: Sources,
    kernels: Mapping[str, Kernels],
    load: Loader,
    held_out: bool = True,
) -> list[Row]:
    """All rows.

    Args:
        kernels: of each measured device.
        load: profile by name.
        held_out: whether attention is fitted again to half of its launches; without, that
            column says nothing.

    Raises:
        ConfigError: a file is missing.
    """
    halved = _halved_kernels(sources, kernels) if held_out else dict(kernels)
    rows = [*_v0_passes(sources, load, halved), *_v0_attention(sources, load, halved)]
    for model, ways, device in FITTED:
        if (model, device) != (L8, H100):
            rows += _layers(sources, kernels, load, (model, ways, device))
    rows += _splitwise(sources, kernels, load)
    rows += _all_reduces(sources, kernels)
    rows += _rtx_attention(sources, load, halved)
    rows += _served(files, load)
    rows += _outside(sources, kernels, load)
    order = {H100: 0, A100: 1, RTX: 2}
    phases = ("prefill", "decode", "mixed step", "all-reduce", "served")
    return sorted(rows, key=lambda row: (order[row.device], phases.index(row.phase)))


def _halved_kernels(sources: Sources, kernels: Mapping[str, Kernels]) -> dict[str, Kernels]:
    """The kernels with attention fitted to the even half of its launches."""
    h100, rtx = kernels[H100], kernels[RTX]
    return {
        H100: h100.model_copy(
            update={
                "prefill_attention": h100_prefill(sources, EVEN),
                "decode_attention": h100_decode(sources, EVEN),
            }
        ),
        A100: kernels[A100],
        RTX: rtx.model_copy(
            update={
                "prefill_attention": rtx_prefill(sources, EVEN),
                "decode_attention": rtx_decode(sources, EVEN),
            }
        ),
    }


def _v0_passes(sources: Sources, load: Loader, halved: dict[str, Kernels]) -> list[Row]:
    name = profile_name(L8, 1, H100)
    profile = load(name)
    half = fit_pair(sources, halved[H100], L8, 1, H100, EVEN)
    dense, head = sources.v0_dense["8B_tp1"], sources.v0_head["8B_tp1"]
    cold = np.array([launch.seconds for launch in sources.v0_cold["8B_tp1"]])
    whole = dense.seconds + profile.layers * cold + head.seconds[0]
    tokens = [int(n) for n in dense.tokens]
    rows = [int(n) for n in head.tokens[:LARGEST_BATCH]]
    flat = dense.seconds[:LARGEST_BATCH] + head.seconds[:LARGEST_BATCH]

    def passes(of: GpuProfile, counts: Sequence[int]) -> list[float]:
        return [of.step_s([(n, 0)], (), 1) for n in counts]

    def batches(of: GpuProfile, counts: Sequence[int]) -> list[float]:
        return [of.layers_s(n) + of.head_s(n) for n in counts]

    return [
        row(
            (H100, "prefill", V0, "8B, whole cold pass", name),
            passes(profile, tokens),
            whole,
            (passes(half, tokens[ODD]), whole[ODD]),
        ),
        row(
            (H100, "decode", V0, "8B, pass without attention", name),
            batches(profile, rows),
            flat,
            (batches(half, rows[ODD]), flat[ODD]),
        ),
    ]


def attention_seconds(profile: GpuProfile, launches: Sequence[Launch]) -> list[float]:
    """One layer's attention of each launch as ``profile`` predicts it."""
    return [
        profile.attention_s([launch.prefill] if launch.prefill else [], launch.decode)
        for launch in launches
    ]


def _launch_row(
    where: tuple[str, str, str, str], profile: GpuProfile, kernels: Kernels, points: list[Launch]
) -> Row:
    half = profile.model_copy(
        update={
            "prefill_attention": kernels.prefill_attention,
            "decode_attention": kernels.decode_attention,
        }
    )
    odd = points[ODD]
    return row(
        (*where, profile.name),
        attention_seconds(profile, points),
        [launch.seconds for launch in points],
        (attention_seconds(half, odd), [launch.seconds for launch in odd]),
    )


def _v0_attention(sources: Sources, load: Loader, halved: dict[str, Kernels]) -> list[Row]:
    large, small = load(profile_name(L70, 4, H100)), load(profile_name(L8, 1, H100))
    assert (large.heads, small.heads) == (V0_HEADS["70B_tp4"], V0_HEADS["8B_tp1"])
    kernels = halved[H100]
    return [
        _launch_row((H100, phase, V0, what), profile, kernels, points)
        for phase, what, profile, points in (
            ("prefill", "attention on cached tokens, 16 heads", large, sources.v0_prefill),
            ("prefill", "attention cold, 32 heads", small, sources.v0_cold["8B_tp1"]),
            ("prefill", "attention cold, 16 heads", large, sources.v0_cold["70B_tp4"]),
            ("decode", "attention, 16 heads", large, sources.v0_decode),
        )
    ]


def _layers(
    sources: Sources, kernels: Mapping[str, Kernels], load: Loader, pair: tuple[str, int, str]
) -> list[Row]:
    model, ways, device = pair
    name = profile_name(model, ways, device)
    profile = load(name)
    half = fit_pair(sources, kernels[device], model, ways, device, EVEN)
    dense = dense_points(sources, kernels[device], model, ways, device)
    assert dense is not None
    source = VLLM if device == RTX else VIDUR
    head = head_points(sources, model, ways, device) if device == RTX else None
    rows = []
    for phase, chosen in by_phase(dense.tokens).items():
        odd = chosen.copy()
        odd[EVEN] = False
        rows.append(
            row(
                (device, phase, source, f"{_said(model, ways)}, layers", name),
                [profile.layers_s(int(n)) for n in dense.tokens[chosen]],
                dense.seconds[chosen],
                ([half.layers_s(int(n)) for n in dense.tokens[odd]], dense.seconds[odd]),
            )
        )
    if head:
        rows.append(
            row(
                (device, "decode", source, f"{_said(model, ways)}, head and sampler", name),
                [profile.head_s(int(n)) for n in head.tokens],
                head.seconds,
                ([half.head_s(int(n)) for n in head.tokens[ODD]], head.seconds[ODD]),
            )
        )
    return rows


def _said(model: str, ways: int) -> str:
    return f"{model}{f' on {ways} GPUs' if ways > 1 else ''}"


def pass_seconds(profile: GpuProfile, passes: Sequence[Pass]) -> list[float]:
    """Each whole pass as ``profile`` predicts it."""
    return [
        profile.step_s([(one.tokens, 0)] * one.batch, (), one.batch)
        if one.kind == "prefill"
        else profile.decode_s([one.tokens] * one.batch)
        for one in passes
    ]


def parted(passes: Sequence[Pass]) -> tuple[list[Pass], list[Pass]]:
    """Every second run of each kind apart; the smallest and largest stay in the first part.

    By run and not by point, because repetitions of a run say nothing new.
    """
    apart = set()
    for kind in BAR_PHASES:
        runs = {one.run: one.batch * one.tokens for one in passes if one.kind == kind}
        ordered = sorted(runs, key=lambda run: (runs[run], run))
        apart |= {(kind, run) for run in ordered[1:-1:2]}
    first = [one for one in passes if (one.kind, one.run) not in apart]
    second = [one for one in passes if (one.kind, one.run) in apart]
    return first, second


def _splitwise(sources: Sources, kernels: Mapping[str, Kernels], load: Loader) -> list[Row]:
    rows = []
    for (device, model, ways), passes in sources.splitwise.items():
        name = profile_name(model, ways, device)
        profile = load(name)
        first, second = parted(passes)
        half = fit_pair(sources, kernels[device], model, ways, device, passes=first)
        for phase in BAR_PHASES:
            all_of = [one for one in passes if one.kind == phase]
            test = [one for one in second if one.kind == phase]
            rows.append(
                row(
                    (device, phase, SPLITWISE, f"{_said(model, ways)}, end to end", name),
                    pass_seconds(profile, all_of),
                    [one.seconds for one in all_of],
                    (pass_seconds(half, test), [one.seconds for one in test]),
                )
            )
    return rows


def _all_reduces(sources: Sources, kernels: Mapping[str, Kernels]) -> list[Row]:
    rows = []
    for (device, ways), found in sources.all_reduce.items():
        curve = kernels[device].all_reduce[ways]
        half = fit_dense(found.part(EVEN), BYTE_KNOTS)
        rows.append(
            row(
                (device, "all-reduce", VIDUR, f"{ways} GPUs, 2 KiB to 64 MiB", ""),
                [curve(int(size)) for size in found.tokens],
                found.seconds,
                ([half(int(size)) for size in found.tokens[ODD]], found.seconds[ODD]),
            )
        )
    return rows


def _rtx_attention(sources: Sources, load: Loader, halved: dict[str, Kernels]) -> list[Row]:
    rows = []
    for name, launches in sources.vllm.items():
        model, ways = VLLM_RUNS[name]
        profile = load(profile_name(model, ways, RTX))
        for phase in ("prefill", "decode", "mixed step"):
            points = [one for one in launches if one.phase == phase]
            where = (RTX, phase, VLLM, f"{_said(model, ways)}, attention")
            rows.append(_launch_row(where, profile, halved[RTX], points))
    return rows


def _served(files: Measurements, load: Loader) -> list[Row]:
    """300 requests of a real vLLM run, served again by the profile."""
    rows = []
    for run, (model, ways) in zip(("Llama-3.1-8B", "Qwen3-32B"), VLLM_RUNS.values(), strict=True):
        profile = load(profile_name(model, ways, RTX))
        real = files.bench(run)
        again = replay(profile, real)
        for what, of in (
            ("TTFT", lambda one: one.first_s - one.queued_s),
            ("TPOT", lambda one: (one.last_s - one.first_s) / (one.answer - 1)),
            ("E2E", lambda one: one.last_s - one.queued_s),
        ):
            where = (RTX, "served", "vLLM run", f"{_said(model, ways)}, {what} per request")
            rows.append(row((*where, profile.name), _each(again, of), _each(real, of)))
    return rows


def _each(requests: Sequence[Served], of: Callable[[Served], float]) -> list[float]:
    return [of(one) for one in requests]


def _outside(sources: Sources, kernels: Mapping[str, Kernels], load: Loader) -> list[Row]:
    """Points that no profile stands for, or another measurement of what one stands for."""
    large = part(ModelShape, L70)
    rows = []
    for device in (H100, A100):
        group = Shaped(large, 1, sources.vidur[device, VIDUR_70B, 1])
        predicted = group.predicted(part(Device, device), kernels[device])
        for phase, chosen in by_phase(group.dense.tokens).items():
            where = (device, phase, VIDUR, f"{OLD70} on 1 GPU, layers", "(roofline)")
            measured = group.dense.seconds[chosen]
            rows.append(row(where, list(predicted[chosen]), measured, counts=False))
    name = profile_name(L70, 4, H100)
    profile = load(name)
    dense = with_all_reduce(sources.v0_dense["70B_tp4"], large, sources.all_reduce[H100, 4])
    for phase, chosen in by_phase(dense.tokens).items():
        again = [profile.layers_s(int(n)) for n in dense.tokens[chosen]]
        where = (H100, phase, V0, f"{_said(L70, 4)}, unfused layers", name)
        rows.append(row(where, again, dense.seconds[chosen], counts=False))
    return rows
