"""A profile from a data sheet and a shape, where nobody published measurements of the pair.

Roofline (Williams, Waterman and Patterson, CACM 2009): a matrix product takes the longer
of its FLOPs at the peak rate and its bytes at the memory's, here each times a share that
was fitted to the nearest measured device.
"""

from __future__ import annotations

from typing import Any

from geokv.engine.profile_cost import GpuProfile, Watts
from geokv.engine.profile_forms import Attention, Curve, WaveCost
from geokv.engine.profile_parts import (
    ELEMENT_BYTES,
    Device,
    Kernels,
    ModelShape,
    part,
    profile_name,
)
from geokv.errors import EngineError

#: Passes whose time a curve keeps; between them it is straight.
TOKENS = (1, 8, 16, 32, 64, 96, 128, 192, 256, 320, 384, 512, 768, 1024, 2048, 4096, 8192)
#: Pass size of a server, as measured and as vLLM's default chunk.
BATCH_TOKENS = 2048
#: All measured attention has heads of 128; others take time in proportion.
MEASURED_HEAD_DIM = 128
#: Share of the GPUs' memory that weights may take and leave room for KV.
WEIGHTS_SHARE = 0.9


def fits(shape: ModelShape, device: Device, ways: int) -> bool:
    """Whether the weights leave room on ``ways`` GPUs, and these can be coupled."""
    room = WEIGHTS_SHARE * device.memory_bytes * ways
    coupled = ways == 1 or ways in all_reduces(device, part(Kernels, device.kernels))
    return shape.weights_bytes <= room and coupled


def all_reduces(device: Device, kernels: Kernels) -> dict[int, Curve]:
    """Seconds over bytes by number of GPUs; none where the links were not measured."""
    same_link = part(Device, device.kernels).interconnect == device.interconnect
    return kernels.all_reduce if same_link else {}


def matrix_s(tokens: int, matrix: tuple[int, int], device: Device, kernels: Kernels) -> float:
    """Seconds of one product of ``tokens`` rows with a matrix of (outputs, inputs)."""
    outputs, inputs = matrix
    moved = ELEMENT_BYTES * (outputs * inputs + tokens * (outputs + inputs))
    return max(
        2.0 * tokens * outputs * inputs / (kernels.compute_share * device.peak_flops),
        moved / (kernels.memory_share * device.bytes_per_s),
    )


def layer_s(tokens: int, shape: ModelShape, ways: int, device: Device, kernels: Kernels) -> float:
    """Seconds of one layer without attention and all-reduce on one of ``ways`` GPUs."""
    products = sum(matrix_s(tokens, matrix, device, kernels) for matrix in shape.matrices(ways))
    pointwise = tokens * shape.pointwise_bytes(ways)
    return kernels.layer_s + products + pointwise / (kernels.memory_share * device.bytes_per_s)


def reduce_s(tokens: int, shape: ModelShape, ways: int, curves: dict[int, Curve]) -> float:
    """Seconds of one layer's two all-reduces of the hidden state."""
    return 2 * curves[ways](tokens * shape.hidden * ELEMENT_BYTES) if ways > 1 else 0.0


def dense_curves(
    shape: ModelShape, ways: int, device: Device, kernels: Kernels
) -> tuple[Curve, Curve]:
    """All layers but attention over tokens, and the output head over rows."""
    reduces = all_reduces(device, kernels)
    layers = [
        shape.layers
        * (layer_s(n, shape, ways, device, kernels) + reduce_s(n, shape, ways, reduces))
        for n in TOKENS
    ]
    head = [matrix_s(n, (shape.vocabulary // ways, shape.hidden), device, kernels) for n in TOKENS]
    return _curve(layers), _curve(head)


def attentions(head_dim: int, device: Device, kernels: Kernels) -> tuple[Attention, Attention]:
    """Prefill and decode attention, from those of the measured device.

    A launch costs the same; a wave of prefill costs more where a multiprocessor computes
    slower, one of decode where the memory gives each block fewer bytes per second.
    """
    measured = part(Device, device.kernels)
    return move(kernels.prefill_attention, kernels.decode_attention, head_dim, measured, device)


def move(
    prefill: Attention, decode: Attention, head_dim: int, measured: Device, device: Device
) -> tuple[Attention, Attention]:
    """Both kernels of ``measured`` as :func:`attentions` has them on ``device``."""
    size = head_dim / MEASURED_HEAD_DIM
    per_processor = measured.attention_flops / measured.multiprocessors
    compute = per_processor / (device.attention_flops / device.multiprocessors)
    all_at_once = decode.side_by_side == measured.multiprocessors
    wider = device.multiprocessors / measured.multiprocessors if all_at_once else 1.0
    memory = wider * measured.bytes_per_s / device.bytes_per_s
    return (
        _moved(prefill, measured, device, compute * size),
        _moved(decode, measured, device, memory * size),
    )


def _moved(attention: Attention, measured: Device, device: Device, slower: float) -> Attention:
    wider = 1.0
    if attention.side_by_side == measured.multiprocessors:
        wider = device.multiprocessors / measured.multiprocessors
    at: list[int] = []
    for knot in attention.fixed_s.at:
        # Knots a block apart, where a wave is full, must not fall together.
        at.append(max(at[-1] + 1 if at else 1, round(knot * wider)))
    waves = attention.wave_s
    return Attention(
        side_by_side=round(attention.side_by_side * wider),
        tile_tokens=attention.tile_tokens,
        context_tile=attention.context_tile,
        fixed_s=Curve(at=tuple(at), seconds=attention.fixed_s.seconds),
        wave_s=WaveCost(at=waves.at, s_per_token=tuple(s * slower for s in waves.s_per_token)),
    )


def compose(model: str, ways: int, device_name: str) -> GpuProfile:
    """The roofline of ``model`` on ``ways`` GPUs.

    Raises:
        EngineError: an unknown part, or weights that do not fit.
    """
    shape, device = part(ModelShape, model), part(Device, device_name)
    if not fits(shape, device, ways):
        raise EngineError(
            f"no profile of {model} on {ways} × {device_name}",
            f"{shape.weights_bytes / 1e9:.0f} GB of weights need {WEIGHTS_SHARE:.0%} of the GPUs' "
            "memory at most, and several GPUs a link whose all-reduce was measured",
        )
    kernels = part(Kernels, device.kernels)
    layers_s, head_s = dense_curves(shape, ways, device, kernels)
    prefill, decode = attentions(shape.head_dim, device, kernels)
    return GpuProfile(
        kind="roofline",
        layers_s=layers_s,
        head_s=head_s,
        prefill_attention=prefill,
        decode_attention=decode,
        fit_error={f"{device.kernels} {name}": error for name, error in kernels.error.items()},
        sources=(
            f"roofline: {kernels.compute_share:.0%} of the peak FLOP/s, "
            f"{kernels.memory_share:.0%} of the memory rate, {kernels.layer_s * 1e6:.1f} µs of "
            f"launches per layer, all fitted to {device.kernels}; its attention kernels, scaled",
            *kernels.sources,
            *(f"{name}: {source}" for name, source in device.sources.items()),
            f"shape: {shape.source}",
        ),
        **deployment(model, ways, device_name, kernels),
    )


def deployment(model: str, ways: int, device_name: str, kernels: Kernels) -> dict[str, Any]:
    """What a profile has from its parts alone, whatever its times come from."""
    shape, device = part(ModelShape, model), part(Device, device_name)
    heads, kv_heads = shape.heads // ways, shape.kv_heads // ways
    count = f"{ways} × " if ways > 1 else ""
    return {
        "name": profile_name(model, ways, device_name),
        "model": f"{shape.title}, bfloat16",
        "device": f"{count}{device.title}",
        "tensor_parallel": ways,
        "layers": shape.layers,
        "heads": heads,
        "decode_blocks": heads if kernels.decode_walks == "query" else kv_heads,
        "kv_bytes_per_token": shape.kv_bytes_per_token,
        "weights_bytes": shape.weights_bytes,
        "batch_tokens": BATCH_TOKENS,
        "one_launch": kernels.one_launch,
        "copy_cost": device.copy_cost,
        "watts": _times(device.watts, ways),
    }


def _times(watts: Watts, ways: int) -> Watts:
    if ways == 1:
        return watts
    scaled = []
    for word in watts.range.split(" "):
        low, dash, high = word.rstrip(",").partition("-")
        if dash:
            word = word.replace(f"{low}-{high}", f"{float(low) * ways:g}-{float(high) * ways:g}")
        scaled.append(word)
    return Watts(
        idle=watts.idle * ways,
        prefill=watts.prefill * ways,
        decode=watts.decode * ways,
        range=" ".join(scaled),
        source=f"{ways} times one GPU; {watts.source}",
    )


def _curve(seconds: list[float]) -> Curve:
    return Curve(at=TOKENS, seconds=tuple(seconds))
