"""Quality over lossy KV: our engine, codecs and KL against transformers' cache and torch's KL."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import kl_div, log_softmax

from geokv.cache.lossy import CODECS
from geokv.engine import load_model, load_tokenizer
from geokv.engine.models import find, require
from geokv.engine.scoring import Scorer
from geokv.errors import EngineError
from geokv.measure.quality import Quality, compare
from geokv.paths import CHECKOUT

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the library's own deprecations are not ours
    import transformers

NAME = "smollm2-135m"
PREFIX, SUFFIX = 256, 128


@pytest.fixture(scope="module")
def folder() -> Path:
    model = find(NAME)
    assert model is not None
    try:
        return require(model)
    except EngineError as error:
        pytest.skip(f"{error.message} ({error.hint})")


@pytest.fixture(scope="module")
def tokens(folder: Path) -> list[int]:
    text = (CHECKOUT / "scenarios" / "real_text" / "garden.txt").read_text(encoding="utf-8")
    return load_tokenizer(NAME).encode(text)[: PREFIX + SUFFIX]


@pytest.fixture(scope="module")
def logits(folder: Path, tokens: list[int]) -> dict[str, torch.Tensor]:
    """Ours, over exact KV and over that of every codec."""
    torch.set_num_threads(1)
    scorer = Scorer(load_model(NAME), tokens[:PREFIX], SUFFIX)
    found = {"exact": scorer.logits(tokens[PREFIX:])}
    for name, codec in CODECS.items():
        found[name] = scorer.logits(tokens[PREFIX:], codec.round_trip)
    return found


@pytest.fixture(scope="module")
def quality(logits: dict[str, torch.Tensor], tokens: list[int]) -> dict[str, Quality]:
    exact, follow = logits["exact"].numpy(), tokens[PREFIX + 1 :]
    return {
        name: compare(exact, altered.numpy(), follow)
        for name, altered in logits.items()
        if name != "exact"
    }


def theirs(folder: Path, tokens: list[int], alter: Any) -> torch.Tensor:
    """The suffix's logits by transformers over its own cache, altered layer by layer."""
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    cache = transformers.DynamicCache()
    # Newer releases rename the parameter and warn of the old name.
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(torch.tensor([tokens[:PREFIX]]), past_key_values=cache)
        if alter is not None:
            for layer in cache.layers:
                for kind in ("keys", "values"):
                    # [1, heads, tokens, head_dim] there, [L, 2, tokens, heads, head_dim] here.
                    kv = getattr(layer, kind)[0].transpose(0, 1)[None, None]
                    setattr(layer, kind, alter(kv)[0, 0].transpose(0, 1)[None].contiguous())
        found: torch.Tensor = model(torch.tensor([tokens[PREFIX:]]), past_key_values=cache).logits
    return found[0]


def test_transformers_sees_the_same_loss(
    folder: Path, tokens: list[int], logits: dict[str, torch.Tensor], quality: dict[str, Quality]
) -> None:
    exact = theirs(folder, tokens, None)
    assert (exact - logits["exact"]).abs().max() < 2e-3
    altered = theirs(folder, tokens, CODECS["int4"].round_trip)
    p, q = log_softmax(exact.double(), -1), log_softmax(altered.double(), -1)
    wanted = kl_div(q, p, log_target=True, reduction="none").sum(-1).mean().item()
    assert quality["int4"].kl.mean == pytest.approx(wanted, rel=0.02)
    assert quality["int4"].top1.mean == pytest.approx(
        (p.argmax(-1) == q.argmax(-1)).double().mean().item(), abs=1.5 / SUFFIX
    )


def test_fewer_bits_lose_more(quality: dict[str, Quality]) -> None:
    """Bounds a factor of three around what 1,024 tokens of Hamlet give."""
    bounds = {
        "bf16": (1e-6, 2e-5),
        "int8": (2e-5, 3e-4),
        "fp8-e4m3": (4e-4, 6e-3),
        "int4": (0.005, 0.12),
        "int3": (0.1, 1.2),
    }
    for name, (least, most) in bounds.items():
        assert least < quality[name].kl.mean < most, (name, quality[name])
    order = [quality[name].kl.mean for name in bounds]
    assert order == sorted(order)
    assert quality["bf16"].top1.mean >= 0.98
    assert quality["int8"].top1.mean >= 0.96
    assert quality["int3"].top1.mean < 0.9
