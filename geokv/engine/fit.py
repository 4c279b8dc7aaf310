"""Fit ``llama-3.1-8b@h100`` to public measurements and print the profile.

    python -m geokv.engine.fit traces/gpu_profiles > geokv/engine/profiles/llama-3.1-8b@h100.yaml

Input is LLMServingSim's ``v0_H100`` profile (MIT): every operator of Llama-3.1-8B over
1 … 2,048 tokens, cold attention included; and the attention kernel of Llama-3.1-70B
under four-way tensor parallelism (16 query heads per GPU) over cached contexts and decode
batches. Attention time depends on heads and context, not on the model around it, so the
second is taken over by its number of heads.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from geokv.engine.profile import GpuProfile
from geokv.errors import ConfigError, GeokvError

Array = NDArray[np.float64]

LAYERS, HEADS, HEADS_MEASURED = 32, 32, 16
_FILES = "llmservingsim"
_LAYERS_8B = "v0_H100_meta-llama_Llama-3.1-8B_tp1_layers.csv.gz"
_ATTENTION_70B = "v0_H100_meta-llama_Llama-3.1-70B_tp4_attention.csv.gz"
_ONCE = ("embedding", "final_layernorm")
_LAYER_KNOTS = (1, 32, 128, 256, 384, 512, 640, 768, 1024, 1280, 1536, 1792, 2048)
_HEAD_KNOTS = (1, 64, 128, 256, 512, 1024, 2048)


def fit(folder: Path) -> GpuProfile:
    """The profile from a folder that holds ``llmservingsim/v0_H100_…``.

    Raises:
        ConfigError: a file is missing.
    """
    operators = _operators(folder / _FILES / _LAYERS_8B)
    tokens = np.arange(1, len(operators["attn"]) + 1, dtype=np.float64)
    repeated = [n for n in operators if n not in {*_ONCE, "attn", "lm_head"}]
    dense: Array = LAYERS * np.sum([operators[n] for n in repeated], axis=0)
    dense += np.sum([operators[n] for n in _ONCE], axis=0)
    layers_s = _fit_curve(tokens, dense, _LAYER_KNOTS)
    head_s = _fit_curve(tokens, operators["lm_head"], _HEAD_KNOTS)

    prefill, decode = _attention(folder / _FILES / _ATTENTION_70B)
    cold = np.column_stack([np.full_like(tokens, HEADS), tokens, tokens, operators["attn"]])
    prefill_points = np.vstack([prefill, cold])
    prefill_coefficients = _fit_prefill(prefill_points)
    decode_coefficients = _fit_decode(decode)

    profile = GpuProfile.model_validate(
        _FACTS
        | {
            "layers_s": _curve(_LAYER_KNOTS, layers_s),
            "head_s": _curve(_HEAD_KNOTS, head_s),
            "prefill_attention": prefill_coefficients,
            "decode_attention": decode_coefficients,
            "fit_error": {"whole_prefill_cold": _NO_ERROR},
        }
    )
    whole = dense + LAYERS * operators["attn"] + operators["lm_head"][0]
    errors = {
        "whole_prefill_cold": _error([profile.prefill_s(int(n)) for n in tokens], whole),
        "layers": _error([profile.layers_s(int(n)) for n in tokens], dense),
        "head": _error([profile.head_s(int(n)) for n in tokens], operators["lm_head"]),
        "attention_prefill_cold": _prefill_error(profile, cold),
        "attention_prefill_cached": _prefill_error(profile, prefill),
        "attention_decode": _error(
            [_decode_prediction(profile, row) for row in decode], decode[:, 3]
        ),
    }
    return GpuProfile.model_validate(profile.model_dump() | {"fit_error": errors})


def _rows(path: Path) -> Iterator[dict[str, str]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None


def _operators(path: Path) -> dict[str, Array]:
    """Seconds of each operator for 1, 2, 3, … tokens."""
    seconds: dict[str, dict[int, float]] = {}
    for row in _rows(path):
        seconds.setdefault(row["layer_name"], {})[int(row["input"])] = (
            float(row["latency(ns)"]) * 1e-9
        )
    return {name: np.array([by[n] for n in sorted(by)]) for name, by in seconds.items()}


def _attention(path: Path) -> tuple[Array, Array]:
    """Prefill rows ``[heads, new, context, s]`` and decode rows ``[heads, batch, context, s]``.

    ``kv_cache_size`` is the whole context: of prefill it includes the chunk (it is never
    smaller, and equal sizes agree with the cold measurements), of decode it is the sum
    over the batch. Decode rows with less than one token per sequence do no work.
    """
    prefill: list[tuple[float, ...]] = []
    decode: list[tuple[float, ...]] = []
    for row in _rows(path):
        context = float(row["kv_cache_size"])
        if row["is_prefill"] == "True":
            seconds = float(row["time_stats.attn_prefill.median"]) * 1e-3
            new = float(row["prefill_chunk_size"])
            prefill.append((HEADS_MEASURED, new, context, seconds))
        elif context >= (batch := float(row["batch_size"])):
            seconds = float(row["time_stats.attn_decode.median"]) * 1e-3
            decode.append((HEADS_MEASURED, batch, context, seconds))
    return np.array(prefill), np.array(decode)


def _solve(features: Array, seconds: Array, weights: Array | None = None) -> Array:
    """Least squares of the relative error."""
    scale = (1.0 if weights is None else np.sqrt(weights)) / seconds
    solution, *_ = np.linalg.lstsq(features * scale[:, None], seconds * scale, rcond=None)
    return np.asarray(solution, dtype=np.float64)


def _fit_curve(at: Array, seconds: Array, knots: tuple[int, ...]) -> Array:
    """Values at the knots of the broken line closest to the points."""
    positions = np.array(knots, dtype=np.float64)
    hats = np.column_stack([np.interp(at, positions, unit) for unit in np.eye(len(knots))])
    return _solve(hats, seconds)


def _fit_branches(
    base: Array, first: Array, second: Array, seconds: Array, weights: Array
) -> Array:
    """Coefficients of ``base·a + max(first·b, second·c)``, alternating branch and fit."""
    widths = (base.shape[1], first.shape[1])
    in_first = np.ones(len(seconds), dtype=bool)
    in_first[np.argsort(second[:, 0])[len(seconds) // 2 :]] = False
    solution = np.zeros(0)
    for _ in range(100):
        features = np.hstack([base, first * in_first[:, None], second * ~in_first[:, None]])
        solution = _solve(features, seconds, weights)
        b = solution[widths[0] : sum(widths)]
        c = solution[sum(widths) :]
        chosen = first @ b >= second @ c
        if bool((chosen == in_first).all()):
            break
        in_first = chosen
    return solution


def _fit_prefill(points: Array) -> dict[str, float]:
    heads, new, context, seconds = points.T
    pairs = new * (context - new) + new * (new + 1) / 2
    # The many cold points and the few cached ones count alike.
    cached = heads == HEADS_MEASURED
    weights = np.where(cached, 1 / cached.sum(), 1 / (~cached).sum())
    fixed, walk, work, tail = _fit_branches(
        np.ones((len(points), 1)),
        context[:, None],
        np.column_stack([heads * pairs, context]),
        seconds,
        weights,
    )
    return {
        "fixed_s": _round(fixed),
        "walk_s_per_token": _round(walk),
        "work_s_per_head_pair": _round(work),
        "tail_s_per_token": _round(tail),
    }


def _fit_decode(points: Array) -> dict[str, float]:
    heads, batch, context, seconds = points.T
    fixed, walk, sequence, token = _fit_branches(
        np.ones((len(points), 1)),
        (context / batch)[:, None],
        np.column_stack([heads * batch, heads * context]),
        seconds,
        np.ones(len(points)),
    )
    return {
        "fixed_s": _round(fixed),
        "walk_s_per_token": _round(walk),
        "work_s_per_head_sequence": _round(sequence),
        "work_s_per_head_token": _round(token),
    }


def _decode_prediction(profile: GpuProfile, row: Array) -> float:
    heads, batch, context = (int(value) for value in row[:3])
    share, rest = divmod(context, batch)
    contexts = [share + (index < rest) for index in range(batch)]
    return profile.decode_attention.seconds(heads, contexts)


def _prefill_error(profile: GpuProfile, points: Array) -> dict[str, float]:
    predicted = [
        profile.prefill_attention.seconds(int(heads), int(new), int(context - new))
        for heads, new, context in points[:, :3]
    ]
    return _error(predicted, points[:, 3])


def _error(predicted: list[float], measured: Array) -> dict[str, Any]:
    relative = np.abs(np.array(predicted) / measured - 1)
    return {
        "points": len(measured),
        "median": round(float(np.median(relative)), 4),
        "p95": round(float(np.percentile(relative, 95)), 4),
    }


def _curve(knots: tuple[int, ...], seconds: Array) -> dict[str, Any]:
    return {"at": list(knots), "seconds": [_round(value) for value in seconds]}


def _round(value: float) -> float:
    return float(f"{value:.4g}")


_NO_ERROR = {"points": 1, "median": 0.0, "p95": 0.0}

#: What is not fitted: the deployment, and constants taken from papers.
_FACTS: dict[str, Any] = {
    "name": "llama-3.1-8b@h100",
    "model": "meta-llama/Llama-3.1-8B, bfloat16, one GPU",
    "device": "NVIDIA H100 SXM5 80 GB (700 W)",
    "layers": LAYERS,
    "heads": HEADS,
    # 32 layers × 2 × 8 KV heads × 128 × 2 bytes; 8,030,261,248 parameters × 2 bytes.
    "kv_bytes_per_token": 131_072,
    "weights_bytes": 16_060_522_496,
    # The largest measured pass; longer prompts are computed in chunks of it, as
    # serving engines do, so that nothing is extrapolated.
    "batch_tokens": 2048,
    "copy_cost": {
        "operation_s": 14e-6,
        "bytes_per_s": 50e9,
        "source": (
            "two-constant fit to LMCache (arXiv 2510.09665): 64 KB 4 GB/s, 256 KB 13 GB/s, "
            "16 MB 49 GB/s"
        ),
    },
    "watts": {
        "idle": 70.0,
        "prefill": 700.0,
        "decode": 300.0,
        "range": "idle 60-80, prefill 600-700, decode 137-300",
        "source": (
            "prefill: H100 SXM5 board limit (compute-bound phase, Splitwise); decode: upper end "
            "of 137-300 W on a 700 W H200 (The Illusion of Power Capping in LLM Decode, 2026); "
            "idle: customary figure, not from a cited measurement"
        ),
    },
    "sources": [
        "casys-kaist/LLMServingSim, commit 5daddb21a545658d5150b535712d0494584b5278, profiler/v0 "
        "(MIT): H100, Llama-3.1-8B tp1 layers",
        "the same: H100, Llama-3.1-70B tp4 attention, taken over by its 16 query heads per GPU",
    ],
}


def main(arguments: list[str]) -> int:
    """Print the YAML on stdout and the errors on stderr."""
    if len(arguments) != 1:
        print("usage: python -m geokv.engine.fit PATH_TO_gpu_profiles", file=sys.stderr)
        return 2
    try:
        profile = fit(Path(arguments[0]))
    except GeokvError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print("# Made by: python -m geokv.engine.fit PATH_TO_gpu_profiles")
    data = profile.model_dump(mode="json")
    print(yaml.safe_dump(data, sort_keys=False, width=100, allow_unicode=True), end="")
    for name, error_of in profile.fit_error.items():
        print(
            f"{name}: {error_of.points} points, relative error median {error_of.median:.2%}, "
            f"p95 {error_of.p95:.2%}",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
