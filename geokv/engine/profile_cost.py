"""A deployment's cost model: seconds and watts of what its GPUs do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from geokv.config import Strict
from geokv.engine.profile_forms import Attention, Count, Curve, NotNegative, Positive
from geokv.errors import EngineError


class CopyCost(Strict):
    """Host-device copies: each operation costs a fixed time, the bytes a rate."""

    operation_s: NotNegative
    bytes_per_s: Positive
    source: str


class Watts(Strict):
    """Board power per phase of all GPUs together, a proxy with its range."""

    idle: Positive
    prefill: Positive
    decode: Positive
    range: str
    source: str


class FitError(Strict):
    """Relative error against measured points."""

    points: Annotated[int, Field(gt=0)]
    median: NotNegative
    p95: NotNegative


class GpuProfile(Strict):
    """What one worker's GPUs cost in time and power.

    Args:
        kind: ``fitted`` to measurements of this very pair, or a ``roofline`` composed of
            the device's data sheet, the model's shape and efficiencies fitted elsewhere.
        tensor_parallel: GPUs that share every layer: each holds that share of the heads,
            weights and KV, computes at the same time as the others, and waits for two
            all-reduces per layer (part of ``layers_s``).
        heads: query heads per GPU.
        decode_blocks: thread blocks per decoding sequence and GPU: its query heads, or its
            KV heads where the kernel walks the context once for a whole group.
        kv_bytes_per_token: size of its KV cache entry, all layers and GPUs.
        weights_bytes: size of its weights, all GPUs.
        batch_tokens: most tokens it computes in one pass; longer prompts go in chunks.
        layers_s: all layers but attention, plus embedding and last norm, over tokens.
        head_s: the output head over rows of logits.
        one_launch: decodes of a mixed step run in the prefill kernel, as one more tile each.
        fit_error: error against measured points by what was compared; of a roofline, that
            of the same efficiencies on the pairs that were measured.
    """

    name: str
    kind: Literal["fitted", "roofline"]
    model: str
    device: str
    tensor_parallel: Count
    layers: Count
    heads: Count
    decode_blocks: Count
    kv_bytes_per_token: Count
    weights_bytes: Count
    batch_tokens: Count
    layers_s: Curve
    head_s: Curve
    prefill_attention: Attention
    decode_attention: Attention
    one_launch: bool
    copy_cost: CopyCost
    watts: Watts
    fit_error: dict[str, FitError]
    sources: tuple[str, ...] = Field(min_length=1)

    def attention_s(self, prefill: Sequence[tuple[int, int]], decode: Sequence[int]) -> float:
        """Seconds of one layer's attention, arguments as of :meth:`step_s`."""
        walks = [
            walk for new, cached in prefill for walk in self.prefill_attention.tiles(new, cached)
        ]
        if walks and self.one_launch:
            walks += decode
            decode = ()
        seconds = self.prefill_attention.seconds(walks, self.heads) if walks else 0.0
        if decode:
            seconds += self.decode_attention.seconds(decode, self.decode_blocks)
        return seconds

    def step_s(self, prefill: Sequence[tuple[int, int]], decode: Sequence[int], rows: int) -> float:
        """Seconds of one pass over prefill chunks and decodes together.

        The dense layers see all tokens at once; so do all chunks' attention and, in a
        launch of its own unless ``one_launch``, that of all decodes.

        Args:
            prefill: ``(new tokens, tokens before them)`` of each chunk.
            decode: tokens of context of each decoding sequence, its new one included.
            rows: rows of logits.

        Raises:
            EngineError: nothing to compute, or a count that makes no sense.
        """
        if any(new < 1 or cached < 0 for new, cached in prefill) or (decode and min(decode) < 1):
            raise EngineError(f"no step of prefills {list(prefill)} and contexts {list(decode)}")
        tokens = sum(new for new, _ in prefill) + len(decode)
        if not tokens:
            raise EngineError("no step of nothing")
        head = self.head_s(rows) if rows else 0.0
        return self.layers_s(tokens) + self.layers * self.attention_s(prefill, decode) + head

    def prefill_s(self, new_tokens: int, cached_tokens: int = 0) -> float:
        """Seconds to compute ``new_tokens`` on top of ``cached_tokens`` and one row of logits.

        In steps of ``batch_tokens``.

        Raises:
            EngineError: a negative count, or nothing to compute.
        """
        if new_tokens < 1 or cached_tokens < 0:
            raise EngineError(f"no prefill of {new_tokens} tokens on {cached_tokens} cached ones")
        total = 0.0
        for done in range(0, new_tokens, self.batch_tokens):
            chunk = min(self.batch_tokens, new_tokens - done)
            last = done + chunk == new_tokens
            total += self.step_s([(chunk, cached_tokens + done)], [], int(last))
        return total

    def decode_s(self, context_tokens: Sequence[int]) -> float:
        """Seconds of one step of a batch; each context includes its new token.

        Raises:
            EngineError: an empty batch or context.
        """
        return self.step_s([], context_tokens, len(context_tokens))

    def copy_s(self, n_bytes: int, operations: int) -> float:
        """Seconds to copy ``n_bytes`` between host and device in ``operations`` pieces.

        Of tensor parallel GPUs each copies its share of every piece at the same time.
        """
        rate = self.copy_cost.bytes_per_s * self.tensor_parallel
        return operations * self.copy_cost.operation_s + n_bytes / rate
