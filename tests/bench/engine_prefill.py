"""Real time of a cold prefill and of decoding with geokv-tiny on one thread.

python tests/bench/engine_prefill.py [PROMPT_TOKENS]
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

import torch

from geokv.engine import Engine, RealCompute, load_model


async def measure(prompt_tokens: int) -> None:
    torch.set_num_threads(1)
    engine = Engine(load_model("geokv-tiny"), prompt_tokens // 16 + 8, RealCompute())
    tokens = random.Random(0).choices(range(256), k=prompt_tokens)
    for attempt in ("first", "second", "third"):
        seq = engine.open(tokens, b"bench", reuse=False)
        start = time.perf_counter()
        await engine.prefill(seq)
        prefilled = time.perf_counter()
        for token in tokens[:20]:
            await engine.decode(seq, token)
        per_token = (time.perf_counter() - prefilled) / 20
        engine.close(seq, keep=False)
        print(
            f"{attempt}: prefill of {prompt_tokens} tokens {prefilled - start:.3f} s, "
            f"decode {per_token * 1e3:.2f} ms per token"
        )
    await engine.compute.aclose()


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 8320))
