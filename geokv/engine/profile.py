"""How long a real deployment computes, and at what power: fitted GPU profiles.

A profile is a YAML file whose coefficients ``geokv.engine.fit`` derives from public
measurements; each carries its sources and its error against the measured points.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from geokv.config import Strict, load_yaml, validate
from geokv.errors import EngineError

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class Curve(Strict):
    """Seconds over a count, straight between knots and beyond the last one."""

    at: tuple[int, ...] = Field(min_length=2)
    seconds: tuple[Positive, ...]

    @model_validator(mode="after")
    def _matches(self) -> Curve:
        if len(self.at) != len(self.seconds):
            raise ValueError(f"{len(self.at)} knots need as many seconds, got {len(self.seconds)}")
        if any(left >= right for left, right in pairwise(self.at)):
            raise ValueError("knots must increase")
        return self

    def __call__(self, count: int) -> float:
        """Seconds at ``count``; below the first knot the first value."""
        if count <= self.at[0]:
            return self.seconds[0]
        right = min(bisect_right(self.at, count), len(self.at) - 1)
        left = right - 1
        share = (count - self.at[left]) / (self.at[right] - self.at[left])
        return self.seconds[left] + share * (self.seconds[right] - self.seconds[left])


class PrefillAttention(Strict):
    """One layer's attention of new tokens on top of a cached prefix.

    A thread block walks the context of one head and one tile of queries. With few of
    them the longest walk decides (``walk_s_per_token``), with many the total work.
    """

    fixed_s: NotNegative
    walk_s_per_token: NotNegative
    work_s_per_head_pair: NotNegative
    tail_s_per_token: NotNegative

    def seconds(self, heads: int, new_tokens: int, cached_tokens: int) -> float:
        """Seconds of one layer."""
        context = cached_tokens + new_tokens
        pairs = new_tokens * cached_tokens + new_tokens * (new_tokens + 1) / 2
        work = self.work_s_per_head_pair * heads * pairs + self.tail_s_per_token * context
        return self.fixed_s + max(self.walk_s_per_token * context, work)


class DecodeAttention(Strict):
    """One layer's attention of one new token per sequence of a batch."""

    fixed_s: NotNegative
    walk_s_per_token: NotNegative
    work_s_per_head_sequence: NotNegative
    work_s_per_head_token: NotNegative

    def seconds(self, heads: int, context_tokens: Sequence[int]) -> float:
        """Seconds of one layer; the longest context or the total work decides."""
        work = heads * (
            self.work_s_per_head_sequence * len(context_tokens)
            + self.work_s_per_head_token * sum(context_tokens)
        )
        return self.fixed_s + max(self.walk_s_per_token * max(context_tokens), work)


class CopyCost(Strict):
    """Host-device copies: each operation costs a fixed time, the bytes a rate."""

    operation_s: NotNegative
    bytes_per_s: Positive
    source: str


class Watts(Strict):
    """Board power per phase, a proxy with its range."""

    idle: Positive
    prefill: Positive
    decode: Positive
    range: str
    source: str


class FitError(Strict):
    """Relative error against the measured points the coefficients come from."""

    points: Annotated[int, Field(gt=0)]
    median: NotNegative
    p95: NotNegative


class GpuProfile(Strict):
    """A deployment's cost model.

    Args:
        kv_bytes_per_token: size of its KV cache entry, all layers.
        weights_bytes: size of its weights on the device.
        batch_tokens: most tokens it computes in one pass; longer prompts go in chunks.
        layers_s: all layers but attention, plus embedding and last norm, over tokens.
        head_s: the output head over rows of logits.
    """

    name: str
    model: str
    device: str
    layers: Annotated[int, Field(gt=0)]
    heads: Annotated[int, Field(gt=0)]
    kv_bytes_per_token: Annotated[int, Field(gt=0)]
    weights_bytes: Annotated[int, Field(gt=0)]
    batch_tokens: Annotated[int, Field(gt=0)]
    layers_s: Curve
    head_s: Curve
    prefill_attention: PrefillAttention
    decode_attention: DecodeAttention
    copy_cost: CopyCost
    watts: Watts
    fit_error: dict[str, FitError]
    sources: tuple[str, ...] = Field(min_length=1)

    def step_s(self, prefill: Sequence[tuple[int, int]], decode: Sequence[int], rows: int) -> float:
        """Seconds of one pass over prefill chunks and decodes together.

        The dense layers see all tokens at once; attention is paid per chunk and for the
        decodes as a batch.

        Args:
            prefill: ``(new tokens, tokens before them)`` of each chunk.
            decode: tokens of context of each decoding sequence, its new one included.
            rows: rows of logits.

        Raises:
            EngineError: nothing to compute, or a count that makes no sense.
        """
        if any(new < 1 or cached < 0 for new, cached in prefill) or any(c < 1 for c in decode):
            raise EngineError(f"no step of prefills {list(prefill)} and contexts {list(decode)}")
        tokens = sum(new for new, _ in prefill) + len(decode)
        if not tokens:
            raise EngineError("no step of nothing")
        attention = sum(
            self.prefill_attention.seconds(self.heads, new, cached) for new, cached in prefill
        )
        if decode:
            attention += self.decode_attention.seconds(self.heads, decode)
        head = self.head_s(rows) if rows else 0.0
        return self.layers_s(tokens) + self.layers * attention + head

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
        """Seconds to copy ``n_bytes`` between host and device in ``operations`` pieces."""
        return operations * self.copy_cost.operation_s + n_bytes / self.copy_cost.bytes_per_s


def known_profiles() -> list[str]:
    """Names :func:`load_profile` takes."""
    folder = resources.files("geokv.engine") / "profiles"
    return sorted(
        item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml")
    )


def load_profile(name: str) -> GpuProfile:
    """A profile of this package, or of a YAML file when ``name`` ends in ``.yaml``.

    Raises:
        EngineError: no such profile.
        ConfigError: the file is not a profile.
    """
    if name.endswith(".yaml"):
        path = Path(name)
        return validate(GpuProfile, load_yaml(path), str(path))
    if name not in (known := known_profiles()):
        raise EngineError(f"unknown GPU profile {name!r}", f"known: {', '.join(known)}")
    with resources.as_file(resources.files("geokv.engine") / "profiles" / f"{name}.yaml") as path:
        return validate(GpuProfile, load_yaml(path), path.name)
