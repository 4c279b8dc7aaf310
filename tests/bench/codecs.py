"""How fast one core codes and decodes KV, and how much shorter it gets.

    python tests/bench/codecs.py [--rounds 5]

smollm2-135m reads the text of scenario real_text; its KV in bfloat16 is coded and decoded as
one layer group (about 22 MB) by every codec of ``geokv.cache.codec``, on one thread, the best of
``--rounds``. Beside it the same number of normal values: noise, which is what random weights give.
``geokv.cache.codec_cost.ZSTD`` is what this said once, of the machine named there.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from geokv.cache.codec import CODECS, Codec, Shape
from geokv.engine import load_model, load_tokenizer
from geokv.engine.scoring import Scorer
from geokv.paths import CHECKOUT

MODEL = "smollm2-135m"
PREFIX_TOKENS = 960


def read_kv() -> torch.Tensor:
    """What the model keeps of the text: bfloat16 ``[layers, 2, tokens, kv_heads, head_dim]``."""
    texts = sorted((CHECKOUT / "scenarios" / "real_text").glob("*.txt"))
    words = "\n\n".join(path.read_text(encoding="utf-8") for path in texts)
    tokens = load_tokenizer(MODEL).encode(words)[:PREFIX_TOKENS]
    assert len(tokens) == PREFIX_TOKENS, "the texts have become shorter"
    return Scorer(load_model(MODEL), tokens, 1).exact.to(torch.bfloat16)


def best_s(work: Callable[[], object], rounds: int) -> float:
    """Processor seconds of the fastest."""
    found = []
    for _ in range(rounds):
        started = time.thread_time()
        work()
        found.append(time.thread_time() - started)
    return min(found)


def row(name: str, codec: Codec, kv: torch.Tensor, rounds: int) -> str:
    shape = Shape("bfloat16", kv.shape[-1])
    raw = memoryview(kv.contiguous().view(torch.uint8).numpy().reshape(-1))
    coded = codec.encode(raw, shape)
    assert coded is not None
    into = memoryview(np.empty(len(raw), np.uint8))
    encode_s = best_s(lambda: codec.encode(raw, shape), rounds)
    decode_s = best_s(lambda: codec.decode(memoryview(coded), shape, into), rounds)
    if not codec.lossy:
        assert into == raw
    speeds = [len(raw) / seconds / 1e9 for seconds in (encode_s, decode_s)]
    share = len(coded) / len(raw)
    return f"{codec.name:6} {name:6} {share:7.1%} {speeds[0]:11.3f} {speeds[1]:11.3f}"


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    kv = read_kv()
    noise = torch.randn(kv.shape, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    print(f"{kv.numel() * 2 / 1e6:.1f} MB of bfloat16 at once, one thread, {processor()}")
    print("codec  KV      length encode GB/s decode GB/s")
    for codec in CODECS.values():
        for name, values in (("text", kv), ("noise", noise)):
            print(row(name, codec, values, rounds), flush=True)


if __name__ == "__main__":
    main()
