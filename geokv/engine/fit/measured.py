"""Public GPU measurements, read from their own files into seconds.

Sources, all MIT: casys-kaist/LLMServingSim @5daddb2 (``profiler/``, ``bench/``),
microsoft/vidur @7d47513 (``data/profiling/``), Mutinifni/splitwise-sim @8f99e7d.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from geokv.engine.fit.solve import Array
from geokv.errors import ConfigError

V0 = "LLMServingSim v0"
VLLM = "LLMServingSim vLLM 0.19"
VIDUR = "Vidur"
SPLITWISE = "Splitwise"

#: Vidur's operators of one layer; one residual addition per layer, as its predictor counts.
_VIDUR_LAYER = (
    "input_layernorm",
    "attn_pre_proj",
    "attn_rope",
    "attn_post_proj",
    "post_attention_layernorm",
    "mlp_up_proj",
    "mlp_act",
    "mlp_down_proj",
    "add",
)
_V0_ONCE = ("embedding", "final_layernorm")
_V0_OTHER = ("attn", "lm_head")
_VLLM_TWICE = "layernorm"


@dataclass(frozen=True)
class Dense:
    """Passes of a whole model without attention and output head: seconds over tokens."""

    tokens: Array
    seconds: Array

    def part(self, chosen: slice | NDArray[np.bool_]) -> Dense:
        """Some of the points."""
        return Dense(self.tokens[chosen], self.seconds[chosen])


@dataclass(frozen=True)
class Launch:
    """One attention launch of one layer.

    Args:
        prefill: ``(new, cached)`` of the chunk, or None.
        decode: contexts of the decoding sequences.
    """

    prefill: tuple[int, int] | None
    decode: tuple[int, ...]
    seconds: float

    @property
    def phase(self) -> Literal["prefill", "decode", "mixed step"]:
        """What it was of: a chunk alone, decodes alone, or both together."""
        if not self.prefill:
            return "decode"
        return "mixed step" if self.decode else "prefill"


@dataclass(frozen=True)
class Pass:
    """One whole pass of a serving stack: prompts of ``tokens`` each, or contexts of a batch.

    Args:
        run: prompt, batch and answer that were asked for; repetitions have the same.
    """

    kind: Literal["prefill", "decode"]
    run: tuple[int, int, int]
    batch: int
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Served:
    """One request of a real run; seconds since the first arrival, as the engine saw it."""

    prompt: int
    answer: int
    queued_s: float
    first_s: float
    last_s: float


class Measurements:
    """The folder ``gpu_profiles`` with its three sources.

    Raises:
        ConfigError: (every method) a file is missing or not what it was.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def v0_operators(self, model: str) -> dict[str, Array]:
        """H100: seconds of each operator over 1, 2, 3, … tokens, of ``8B_tp1`` or ``70B_tp4``."""
        path = f"llmservingsim/v0_H100_meta-llama_Llama-3.1-{model}_layers.csv.gz"
        seconds: dict[str, dict[int, float]] = defaultdict(dict)
        for row in self._rows(path):
            seconds[row["layer_name"]][int(row["input"])] = float(row["latency(ns)"]) * 1e-9
        return {name: np.array([by[n] for n in sorted(by)]) for name, by in seconds.items()}

    def v0_dense(self, model: str, layers: int) -> Dense:
        """The same operators as passes without attention and head."""
        operators = self.v0_operators(model)
        repeated = [name for name in operators if name not in {*_V0_ONCE, *_V0_OTHER}]
        seconds = layers * np.sum([operators[name] for name in repeated], axis=0)
        seconds += np.sum([operators[name] for name in _V0_ONCE], axis=0)
        return Dense(np.arange(1, len(seconds) + 1, dtype=np.float64), seconds)

    def v0_attention(self) -> tuple[list[Launch], list[Launch]]:
        """H100, 16 query heads (Llama-3.1-70B on four GPUs): prefill and decode launches.

        ``kv_cache_size`` is the whole context: of prefill it includes the chunk (it is
        never smaller, and equal sizes agree with the cold measurements), of decode it is
        the sum over the batch. Decode rows with less than one token per sequence do no
        work and are left out.
        """
        prefill, decode = [], []
        for row in self._rows(
            "llmservingsim/v0_H100_meta-llama_Llama-3.1-70B_tp4_attention.csv.gz"
        ):
            context = int(row["kv_cache_size"])
            if row["is_prefill"] == "True":
                new = int(row["prefill_chunk_size"])
                seconds = float(row["time_stats.attn_prefill.median"]) * 1e-3
                prefill.append(Launch((new, context - new), (), seconds))
            elif context >= (batch := int(row["batch_size"])):
                share, rest = divmod(context, batch)
                contexts = tuple(share + (index < rest) for index in range(batch))
                seconds = float(row["time_stats.attn_decode.median"]) * 1e-3
                decode.append(Launch(None, contexts, seconds))
        return prefill, decode

    def vllm_dense(self, model: str, layers: int) -> Dense:
        """RTX PRO 6000: passes of ``meta-llama_Llama-3.1-8B_bf16_tp1`` and the like."""
        sums: dict[int, float] = defaultdict(float)
        for row in self._rows(f"llmservingsim/RTXPRO6000_{model}_dense.csv.gz"):
            name = row["layer"]
            times = 1 if name in _V0_ONCE else layers * (2 if name == _VLLM_TWICE else 1)
            sums[int(row["tokens"])] += times * float(row["time_us"]) * 1e-6
        tokens = sorted(sums)
        return Dense(np.array(tokens, dtype=np.float64), np.array([sums[n] for n in tokens]))

    def vllm_head(self, model: str) -> Dense:
        """RTX PRO 6000: output head and sampler over sequences."""
        sums: dict[int, float] = defaultdict(float)
        for row in self._rows(f"llmservingsim/RTXPRO6000_{model}_per_sequence.csv.gz"):
            sums[int(row["sequences"])] += float(row["time_us"]) * 1e-6
        rows = sorted(sums)
        return Dense(np.array(rows, dtype=np.float64), np.array([sums[n] for n in rows]))

    def vllm_attention(self, model: str) -> list[Launch]:
        """RTX PRO 6000: launches of a chunk, of decodes, and of both together."""
        launches = []
        for row in self._rows(f"llmservingsim/RTXPRO6000_{model}_attention.csv.gz"):
            new, context = int(row["prefill_chunk"]), int(row["kv_decode"])
            launches.append(
                Launch(
                    (new, int(row["kv_prefill"])) if new else None,
                    (context,) * int(row["n_decode"]),
                    float(row["time_us"]) * 1e-6,
                )
            )
        return launches

    def vidur_dense(self, device: str, model: str, ways: int, layers: int) -> Dense:
        """A100 or H100: passes without attention and head of one of ``ways`` GPUs."""
        found: dict[int, list[float]] = defaultdict(list)
        for row in self._rows(f"vidur/compute_{device}_{model}_mlp.csv.gz"):
            if int(row["num_tensor_parallel_workers"]) != ways:
                continue
            layer = sum(float(row[f"time_stats.{name}.median"]) for name in _VIDUR_LAYER)
            once = float(row["time_stats.emb.median"])
            found[int(row["num_tokens"])].append((layers * layer + once) * 1e-3)
        tokens = sorted(found)
        seconds = [float(np.median(found[n])) for n in tokens]
        return Dense(np.array(tokens, dtype=np.float64), np.array(seconds))

    def vidur_all_reduce(self, device: str, ways: int) -> Dense:
        """A100 or H100 DGX, ``ways`` GPUs of one node: seconds over bytes."""
        found: dict[int, list[float]] = defaultdict(list)
        for row in self._rows(f"vidur/network_{device}_dgx_all_reduce.csv.gz"):
            if int(row["num_workers"]) == int(row["devices_per_node"]) == ways:
                seconds = float(row["time_stats.all_reduce.median"]) * 1e-3
                found[int(row["size"])].append(seconds)
        sizes = sorted(found)
        return Dense(
            np.array(sizes, dtype=np.float64),
            np.array([float(np.median(found[size])) for size in sizes]),
        )

    def splitwise(self, model: str, device: str, ways: int) -> list[Pass]:
        """End-to-end runs: the prompt's pass, and a decode pass at the answer's middle.

        The tokens really generated follow from the times (long answers ended early).
        Prompts that did not fit into memory at once were computed in parts: left out, see
        :data:`SPLITWISE_LEFT_OUT`.
        """
        passes = []
        for row in self._rows("splitwise/perf_model.csv"):
            if (row["model"], row["hardware"], row["tensor_parallel"]) != (
                model,
                device,
                str(ways),
            ):
                continue
            batch, prompt = int(row["batch_size"]), int(row["prompt_size"])
            if ways == 2 and batch == 64:
                continue
            prompt_s, token_s = float(row["prompt_time"]) * 1e-3, float(row["token_time"]) * 1e-3
            answer = (float(row["e2e_time"]) * 1e-3 - prompt_s) / token_s
            run = (prompt, batch, int(row["token_size"]))
            passes.append(Pass("prefill", run, batch, prompt, prompt_s))
            passes.append(Pass("decode", run, batch, prompt + round(answer / 2), token_s))
        return passes

    def bench(self, model: str) -> list[Served]:
        """RTX PRO 6000: 300 ShareGPT requests served by vLLM 0.19, by arrival."""
        path = f"llmservingsim/bench_RTXPRO6000_{model}_vllm_requests.jsonl"
        try:
            lines = (self.folder / path).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise self._missing(path, error) from None
        rows = [json.loads(line) for line in lines]
        rows.sort(key=lambda row: float(row["arrival_time"]))
        # Two clocks: arrival is wall time, the rest is monotonic; they are tied at the first.
        arrival0, queued0 = float(rows[0]["arrival_time"]), float(rows[0]["queued_ts"])
        return [
            Served(
                row["input_toks"],
                row["output_toks"],
                float(row["arrival_time"]) - arrival0,
                float(row["first_token_ts"]) - queued0,
                float(row["last_token_ts"]) - queued0,
            )
            for row in rows
        ]

    def _rows(self, path: str) -> Iterator[dict[str, str]]:
        whole = self.folder / path
        opened = gzip.open if path.endswith(".gz") else open
        try:
            with opened(whole, "rt", encoding="utf-8", newline="") as file:
                yield from csv.DictReader(file)
        except OSError as error:
            raise self._missing(path, error) from None

    def _missing(self, path: str, error: OSError) -> ConfigError:
        return ConfigError(
            f"{self.folder / path}: cannot be read ({error.strerror or error})",
            "give the folder that holds llmservingsim/, vidur/ and splitwise/",
        )


SPLITWISE_LEFT_OUT = (
    "Splitwise, 64 prompts of 512 on two GPUs: they did not fit into memory and ran in parts",
    "Splitwise, power-capped H100: no such device is stood for",
)
