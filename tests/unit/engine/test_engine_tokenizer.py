from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from geokv.engine import Engine, LlamaModel, RealCompute, SamplingParams, generate
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


async def test_generation_streams_the_text_of_its_tokens_and_stops(tiny: LlamaModel) -> None:
    tokenizer = load_tokenizer("geokv-tiny")
    engine = Engine(tiny, 40, RealCompute())

    async def run(params: SamplingParams) -> tuple[list[int], str, str | None]:
        seq = engine.open(tokenizer.encode("How far is Kyoto?"), b"t")
        events = [event async for event in generate(engine, seq, params, tokenizer)]
        engine.close(seq)
        assert [event.index for event in events] == list(range(len(events)))
        assert all(event.finish is None for event in events[:-1])
        return [e.token for e in events], "".join(e.text for e in events), events[-1].finish

    tokens, text, finish = await run(SamplingParams(max_tokens=40, ignore_eos=True))
    assert (len(tokens), finish) == (40, "length")
    assert text == tokenizer.decode(tokens)

    third = tokens[9]
    first = tokens.index(third)
    short, _, finish = await run(
        SamplingParams(max_tokens=40, stop_token_ids=(third,), ignore_eos=True)
    )
    assert (short, finish) == (tokens[: first + 1], "stop")

    stop = text[5:8]
    _, cut, finish = await run(SamplingParams(max_tokens=40, stop=(stop,), ignore_eos=True))
    assert (cut, finish) == (text[: text.index(stop)], "stop")

    hot = SamplingParams(max_tokens=20, temperature=1.5, seed=4, ignore_eos=True)
    assert await run(hot) == await run(hot)
    await engine.compute.aclose()


async def test_a_stop_string_is_held_back_until_it_is_sure(tiny: LlamaModel) -> None:
    from geokv.engine.generation import _Text

    text = _Text(ByteTokenizer().detokenizer(), ("END",))
    shown = [text.push(byte) for byte in b"aENbEND"]
    assert [piece for piece, _ in shown] == ["a", "", "", "ENb", "", "", ""]
    assert [stopped for _, stopped in shown] == [False] * 6 + [True]
    text = _Text(ByteTokenizer().detokenizer(), ("END",))
    assert [text.push(byte)[0] for byte in b"xEN"] == ["x", "", ""]
    assert text.finish() == "EN"
