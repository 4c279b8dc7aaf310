"""Fit everything but attention: curves over tokens, all-reduces, and roofline efficiencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geokv.engine.fit.measured import Dense, Pass
from geokv.engine.fit.solve import Array, curve, fit_curve, relative, rising, rounded
from geokv.engine.profile_cost import GpuProfile
from geokv.engine.profile_forms import Attention, Curve, WaveCost
from geokv.engine.profile_parts import ELEMENT_BYTES, Device, Kernels, ModelShape
from geokv.engine.profile_roofline import layer_s

#: Passes up to this size are compared as decodes of a batch, larger ones as prefills.
LARGEST_BATCH = 256

#: Of the memory's rate that any kernel reaches; launches and it explain small passes alike,
#: and measurements alone do not tell them apart.
MOST_MEMORY_SHARE = 0.9

LAYER_KNOTS = (1, 8, 32, 64, 128, 192, 256, 384, 512, 640, 768, 1024, 1280, 1536, 1792, 2048, 4096)
HEAD_KNOTS = (1, 64, 128, 256, 512, 1024, 2048)
#: Of an end-to-end stack: decode batches to 64, prompts from 128 on.
STACK_KNOTS = (1, 16, 32, 64, 128, 512, 2048, 4096, 8192, 32768)
BYTE_KNOTS = (2**11, 2**19, 2**21, 2**22, 2**23, 2**24, 2**26)


def by_phase(tokens: Array) -> dict[str, NDArray[np.bool_]]:
    """Which passes of ``tokens`` are compared as what."""
    large = tokens > LARGEST_BATCH
    return {"prefill": large, "decode": ~large}


def fit_dense(dense: Dense, knots: Sequence[int]) -> Curve:
    """The curve of a pass, with those knots that the points reach."""
    reached = [knot for knot in knots if knot <= dense.tokens.max()]
    return fit_curve(dense.tokens, dense.seconds, reached)


def with_all_reduce(dense: Dense, shape: ModelShape, reduce: Dense) -> Dense:
    """Passes with two measured all-reduces of the hidden state per layer added.

    Sizes between measured ones are read off the straight line between them.
    """
    size = dense.tokens * shape.hidden * ELEMENT_BYTES
    extra = 2 * shape.layers * np.interp(size, reduce.tokens, reduce.seconds)
    return Dense(dense.tokens, dense.seconds + extra)


@dataclass(frozen=True)
class Shaped:
    """Passes of a known shape, for efficiencies that hold for every shape."""

    shape: ModelShape
    ways: int
    dense: Dense

    def thinned(self, most: int = 32) -> Shaped:
        """Evenly fewer points: three constants need no more."""
        step = max(1, len(self.dense.tokens) // most)
        return Shaped(self.shape, self.ways, self.dense.part(slice(None, None, step)))

    def predicted(self, device: Device, kernels: Kernels) -> Array:
        """The roofline's seconds of the same passes."""
        return np.array(
            [
                self.shape.layers * layer_s(int(n), self.shape, self.ways, device, kernels)
                for n in self.dense.tokens
            ]
        )


def fit_efficiencies(device: Device, kernels: Kernels, points: Sequence[Shaped]) -> Kernels:
    """``kernels`` with the shares and launch time that come closest to all passes.

    Least mean square of the error's logarithm, every source alike; coordinate search with
    a shrinking step, which three well-behaved constants do not need more than.
    """
    thin = [group.thinned() for group in points]

    def loss(at: tuple[float, float, float]) -> float:
        tried = kernels.model_copy(
            update={"compute_share": at[0], "memory_share": at[1], "layer_s": at[2]}
        )
        errors = [
            np.log(group.predicted(device, tried) / group.dense.seconds) ** 2 for group in thin
        ]
        return float(np.mean([error.mean() for error in errors]))

    best, step = (0.6, 0.7, 10e-6), 1.3
    least = loss(best)
    while step > 1.005:
        moves = [
            (min(1.0, best[0] * a), min(MOST_MEMORY_SHARE, best[1] * b), best[2] * c)
            for a, b, c in (
                (step, 1, 1), (1 / step, 1, 1), (1, step, 1),
                (1, 1 / step, 1), (1, 1, step), (1, 1, 1 / step),
            )
        ]  # fmt: skip
        found = min(moves, key=loss)
        if (value := loss(found)) < least:
            best, least = found, value
        else:
            step = step**0.5
    return kernels.model_copy(
        update={
            "compute_share": rounded(best[0], 3),
            "memory_share": rounded(best[1], 3),
            "layer_s": rounded(best[2], 3),
        }
    )


def fit_stack(passes: Sequence[Pass], start: GpuProfile, device: Device) -> GpuProfile:
    """``start`` with the layers' curve and decode attention of an end-to-end stack.

    Its prefill attention and head stay; a token of context costs a decode at least the
    memory's time for its KV.
    """
    heads, layers = start.heads, start.layers
    floor = start.kv_bytes_per_token / start.tensor_parallel / device.bytes_per_s
    tokens, context, known = [], [], []
    for one in passes:
        head = start.head_s(one.batch)
        if one.kind == "prefill":
            attention = layers * start.attention_s([(one.tokens, 0)] * one.batch, ())
            tokens.append(one.batch * one.tokens)
            context.append(0)
            known.append(attention + head)
        else:
            tokens.append(one.batch)
            context.append(one.batch * one.tokens)
            known.append(one.batch * one.tokens * floor + head)
    measured = np.array([one.seconds for one in passes])
    rest = np.maximum(measured - np.array(known), 0.05 * measured)
    at = np.array(tokens, dtype=np.float64)
    reached = [knot for knot in STACK_KNOTS if knot <= at.max()]
    features = np.column_stack([rising(reached, at), np.array(context, dtype=np.float64)])
    # An error counts in proportion to the whole pass, of which this is a part.
    found = relative(features, rest, (rest / measured) ** 2)
    per_token = (float(found[-1]) + floor) / layers
    return start.model_copy(
        update={
            "layers_s": curve(reached, found[:-1]),
            "decode_attention": Attention(
                side_by_side=heads,
                tile_tokens=1,
                context_tile=1,
                fixed_s=Curve(at=(1, 2), seconds=(0.0, 0.0)),
                wave_s=WaveCost(at=(1,), s_per_token=(rounded(per_token),)),
            ),
            "decode_blocks": heads,
            "batch_tokens": int(at.max()),
        }
    )
