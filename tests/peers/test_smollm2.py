"""smollm2-135m as fetched, against transformers reading the same GGUF file in float32."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import pre_tokenizers

from geokv.engine import LlamaModel, Span, Tokenizer, load_model, load_tokenizer
from geokv.engine.models import find, require
from geokv.engine.models.package import obtain
from geokv.errors import EngineError, HostError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the library's own deprecations are not ours
    import transformers

NAME = "smollm2-135m"
STEPS = 32
PLAIN = "The capital of France is"
STORY = (
    "Water boils at a lower temperature on a mountain because the air there presses less on its "
    "surface. Cooks who live in the Alps therefore"
)
CHAT = [{"role": "user", "content": "Name the three primary colours, in one short sentence."}]
VARIED = [
    PLAIN,
    "In 1969, 3 people flew 384,400 km; 2 of them walked on the Moon. π ≈ 3.14159",
    "naïve café – Ærøskøbing – Zażółć gęślą jaźń – Ελληνικά – Привет, мир – 東京タワー – 안녕",
    "emoji 🚄🇯🇵👩‍👩‍👧 and combining e\u0301 \u200bzero width",
    "def f(x: int) -> str:\n    return f'{x:>08.3f}'  # comment\n\n\n\tif x != 3:\n\t\tpass\r\n",
    "  leading,   inner   and trailing   ",
    "don't they've I'm WE'LL it's",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "https://example.org/a?b=c&d=%20#frag {}[]()<>|\\/~`^",
]
DIGITS_FIRST = ["    1  22", "x =   7\n\n42", "a ½ cup"]


@pytest.fixture(scope="module")
def folder() -> Path:
    model = find(NAME)
    assert model is not None
    try:
        return require(model)
    except EngineError as error:
        pytest.skip(f"{error.message} ({error.hint})")


@pytest.fixture(scope="module")
def gguf(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = find(NAME)
    assert model is not None
    try:
        return obtain(model, tmp_path_factory.mktemp("gguf"), None, lambda *_: None)
    except HostError as error:
        pytest.skip(f"no GGUF file to compare with: {error.message}")


@pytest.fixture(scope="module")
def theirs(gguf: Path) -> Any:
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32
        ).eval()


@pytest.fixture(scope="module")
def their_tokenizer(gguf: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)


@pytest.fixture(scope="module")
def ours(folder: Path) -> LlamaModel:
    torch.set_num_threads(1)
    return load_model(NAME)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return load_tokenizer(NAME)


def logits_after(model: LlamaModel, tokens: list[int]) -> torch.Tensor:
    pool = model.new_pool(-(-len(tokens) // 16))
    return model.forward([Span(tokens, 0, pool.allocate(-(-len(tokens) // 16)))], pool)[0]


def greedy(model: LlamaModel, tokens: list[int], steps: int) -> list[int]:
    blocks = -(-(len(tokens) + steps) // 16)
    pool = model.new_pool(blocks)
    table = pool.allocate(blocks)
    logits = model.forward([Span(tokens, 0, table)], pool)[0]
    chosen: list[int] = []
    while True:
        chosen.append(int(logits.argmax()))
        if len(chosen) == steps:
            return chosen
        at = len(tokens) + len(chosen) - 1
        logits = model.forward([Span(chosen[-1:], at, table)], pool)[0]


def test_weights_are_those_of_the_file(theirs: Any, folder: Path) -> None:
    from safetensors.torch import load_file

    mine = load_file(folder / "model.safetensors")
    wanted = {name: value for name, value in theirs.state_dict().items() if name in mine}
    assert len(wanted) == len(mine) == 272
    assert all(torch.equal(mine[name], value) for name, value in wanted.items())


def test_logits_agree_to_a_thousandth(theirs: Any, ours: LlamaModel, tokenizer: Tokenizer) -> None:
    for tokens in (tokenizer.encode(PLAIN), tokenizer.encode(STORY), tokenizer.chat(CHAT)):
        with torch.no_grad():
            wanted = theirs(torch.tensor([tokens]), use_cache=False).logits[0, -1]
        assert (logits_after(ours, tokens) - wanted).abs().max() < 1e-3


def test_the_capital_of_france_is_paris(ours: LlamaModel, tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(greedy(ours, tokenizer.encode(PLAIN), 2)).startswith(" Paris")


@pytest.mark.parametrize("kind", ["plain", "story", "chat"])
def test_the_same_greedy_answers(
    kind: str, theirs: Any, their_tokenizer: Any, ours: LlamaModel, tokenizer: Tokenizer
) -> None:
    tokens = {
        "plain": tokenizer.encode(PLAIN),
        "story": tokenizer.encode(STORY),
        "chat": tokenizer.chat(CHAT),
    }[kind]
    with torch.no_grad():
        wanted = theirs.generate(
            torch.tensor([tokens]),
            attention_mask=torch.ones(1, len(tokens), dtype=torch.long),
            pad_token_id=2,
            eos_token_id=-1,
            max_new_tokens=STEPS,
            do_sample=False,
        )[0, len(tokens) :].tolist()
    assert greedy(ours, tokens, STEPS) == wanted
    assert tokenizer.decode(wanted) == their_tokenizer.decode(wanted, skip_special_tokens=True)


def test_the_same_tokens_as_transformers(their_tokenizer: Any, tokenizer: Tokenizer) -> None:
    for text in VARIED:
        assert tokenizer.encode(text) == their_tokenizer(text).input_ids, text
    for text in (PLAIN, *VARIED[1:5]):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
        wanted = their_tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        wanted = wanted if isinstance(wanted, list) else wanted["input_ids"]
        assert tokenizer.chat(messages) == wanted, text


def test_digits_are_cut_out_first_as_smollm_was_trained(
    their_tokenizer: Any, tokenizer: Tokenizer
) -> None:
    """transformers does not read ``tokenizer.ggml.pre``; told of it, it agrees everywhere."""
    backend = Backend.from_str(their_tokenizer.backend_tokenizer.to_str())
    assert json.loads(backend.to_str())["pre_tokenizer"]["type"] == "ByteLevel"
    for text in DIGITS_FIRST:
        assert tokenizer.encode(text) != backend.encode(text).ids, text
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    for text in (*VARIED, *DIGITS_FIRST):
        assert tokenizer.encode(text) == backend.encode(text).ids, text
