from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from geokv.engine.tokenizer import ByteTokenizer, FolderTokenizer, Tokenizer, load_tokenizer
from geokv.errors import EngineError

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TEXT = "naïve café – 東京 🚄🇯🇵 e\u0301, and plain words after that"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real byte-level BPE tokenizer, trained on a few lines."""
    path = tmp_path_factory.mktemp("model")
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = ["<|end|>", "<|user|>", "<|assistant|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["and plain words after that", "the café naïve"], trainer)
    backend.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": {"content": "<|end|>"}, "chat_template": TEMPLATE})
    )
    (path / "config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    return path


def streamed(tokenizer: Tokenizer, tokens: list[int]) -> list[str]:
    detokenizer = tokenizer.detokenizer()
    return [*(detokenizer.push(token) for token in tokens), detokenizer.finish()]


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_bytes_come_back(text: str) -> None:
    tokenizer = ByteTokenizer()
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    assert all(0 <= token < tokenizer.vocab_size for token in tokens)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 263), max_size=30))
def test_streaming_any_bytes_gives_the_whole_text(tokens: list[int]) -> None:
    tokenizer = ByteTokenizer()
    assert "".join(streamed(tokenizer, tokens)) == tokenizer.decode(tokens)


@pytest.mark.parametrize("kind", ["bytes", "folder"])
def test_no_half_character_is_ever_emitted(kind: str, folder: Path) -> None:
    tokenizer: Tokenizer = ByteTokenizer() if kind == "bytes" else FolderTokenizer(folder)
    tokens = tokenizer.encode(TEXT)
    pieces = streamed(tokenizer, tokens)
    assert "".join(pieces) == TEXT
    assert not any("\ufffd" in piece for piece in pieces)
    assert "" in pieces
    # An answer cut inside a character ends with one replacement character.
    cut = streamed(tokenizer, tokenizer.encode("東")[:-1])
    assert "".join(cut).endswith("\ufffd")


def test_chat_of_the_byte_tokenizer_separates_roles() -> None:
    tokenizer = ByteTokenizer()
    tokens = tokenizer.chat([{"role": "user", "content": "hi"}])
    assert tokens == [256, 260, 104, 105, 258, 261]
    with pytest.raises(EngineError, match="unknown role 'root'"):
        tokenizer.chat([{"role": "root", "content": "x"}])
    with pytest.raises(EngineError, match="at least one"):
        tokenizer.chat([])


def test_chat_of_a_folder_uses_its_template_and_special_tokens(folder: Path) -> None:
    tokenizer = FolderTokenizer(folder)
    tokens = tokenizer.chat([{"role": "user", "content": "plain"}])
    assert tokens[0] == 1
    assert tokens[-2:] == [0, 2]
    assert tokenizer.decode(tokens) == "plain"
    assert tokenizer.stop_ids == {0, 7, 9}


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% if %}", "chat template failed"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "chat template failed"),
        ("{{ messages.append(1) }}", "chat template failed"),
    ],
)
def test_templates_run_in_a_sandbox(
    folder: Path, tmp_path: Path, template: str, words: str
) -> None:
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    (tmp_path / "chat_template.jinja").write_text(template)
    with pytest.raises(EngineError, match=words):
        load_tokenizer(tmp_path).chat([{"role": "user", "content": "x"}])


def test_missing_parts_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="does not exist"):
        load_tokenizer(tmp_path / "none")
    with pytest.raises(EngineError, match=r"no tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(EngineError, match="is not a tokenizer"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    with pytest.raises(EngineError, match="no chat template"):
        load_tokenizer(tmp_path).chat([{"role": "user", "content": "x"}])
