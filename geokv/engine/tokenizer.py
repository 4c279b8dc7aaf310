"""Text to tokens and back: bytes for ``geokv-tiny``, ``tokenizer.json`` for checkpoints."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from geokv.engine.models import find, require
from geokv.engine.weights import read_json
from geokv.errors import EngineError

#: A chat message: ``{"role": "user", "content": "…"}``.
Message = Mapping[str, str]


class Detokenizer(Protocol):
    """Text of one answer, token by token; never half a character."""

    def push(self, token: int) -> str:
        """Text that is certain after ``token``; may be empty."""
        ...

    def finish(self) -> str:
        """What was held back; an unfinished character becomes U+FFFD."""
        ...


class Tokenizer(Protocol):
    """What the API and the generator need of a tokenizer."""

    vocab_size: int
    stop_ids: frozenset[int]

    def encode(self, text: str) -> list[int]:
        """Tokens of a plain prompt, with the model's start token where it has one."""
        ...

    def chat(self, messages: Sequence[Message]) -> list[int]:
        """Tokens of a conversation, ending where the assistant is to speak."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of ``tokens`` without special tokens."""
        ...

    def detokenizer(self) -> Detokenizer:
        """A fresh incremental decoder."""
        ...


class ByteTokenizer:
    """256 bytes and six special tokens; every text has exactly one encoding."""

    bos, eos, end = 256, 257, 258
    roles: Mapping[str, int] = {"system": 259, "user": 260, "assistant": 261}
    vocab_size = 264
    stop_ids = frozenset({257, 258})

    def encode(self, text: str) -> list[int]:
        """Start token and UTF-8 bytes."""
        return [self.bos, *text.encode()]

    def chat(self, messages: Sequence[Message]) -> list[int]:
        """``bos (role bytes end)… assistant``.

        Raises:
            EngineError: no messages, or an unknown role.
        """
        if not messages:
            raise EngineError("a chat needs at least one message")
        tokens = [self.bos]
        for message in messages:
            role = message.get("role", "")
            if role not in self.roles:
                raise EngineError(f"unknown role {role!r}", f"use {', '.join(self.roles)}")
            tokens += [self.roles[role], *message.get("content", "").encode(), self.end]
        return [*tokens, self.roles["assistant"]]

    def decode(self, tokens: Sequence[int]) -> str:
        """UTF-8 text; bytes that are none become U+FFFD."""
        return bytes(token for token in tokens if token < 256).decode(errors="replace")

    def detokenizer(self) -> Detokenizer:
        """A fresh incremental UTF-8 decoder."""
        return _ByteDetokenizer()


class _ByteDetokenizer:
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(bytes((token,))) if token < 256 else ""

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class FolderTokenizer:
    """``tokenizer.json`` and the chat template of a checkpoint folder.

    Raises:
        EngineError: the folder has no usable ``tokenizer.json``.
    """

    def __init__(self, folder: Path) -> None:
        # Imported here: geokv-tiny must not pay for it.
        from tokenizers import Tokenizer as Backend

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise EngineError(f"{folder}: has no tokenizer.json")
        try:
            self._backend: Any = Backend.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise EngineError(f"{path}: is not a tokenizer ({error})") from None
        self._folder = folder
        self._settings = _optional_json(folder / "tokenizer_config.json")
        self.vocab_size = int(self._backend.get_vocab_size())
        self.stop_ids = self._stop_ids()

    def encode(self, text: str) -> list[int]:
        """Tokens with the special tokens the checkpoint's post-processor adds."""
        return list(self._backend.encode(text).ids)

    def chat(self, messages: Sequence[Message]) -> list[int]:
        """The checkpoint's own chat template, rendered in a sandbox.

        Raises:
            EngineError: there is no template, or it refuses the messages.
        """
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(text: str) -> None:
            raise TemplateError(text)

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = refuse
        try:
            text = environment.from_string(self._template()).render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=True,
                bos_token=_text(self._settings.get("bos_token")),
                eos_token=_text(self._settings.get("eos_token")),
            )
        except TemplateError as error:
            raise EngineError(f"{self._folder}: chat template failed ({error})") from None
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text without special tokens."""
        return str(self._backend.decode(list(tokens), skip_special_tokens=True))

    def detokenizer(self) -> Detokenizer:
        """A fresh incremental decoder."""
        return _FolderDetokenizer(self)

    def _template(self) -> str:
        own = self._folder / "chat_template.jinja"
        if own.is_file():
            return own.read_text(encoding="utf-8")
        template = self._settings.get("chat_template")
        if isinstance(template, list):
            named = {item.get("name"): item.get("template") for item in template}
            template = named.get("default")
        if not isinstance(template, str):
            raise EngineError(
                f"{self._folder}: has no chat template", "use /v1/completions with this model"
            )
        return template

    def _stop_ids(self) -> frozenset[int]:
        found: set[int] = set()
        for name in ("generation_config.json", "config.json"):
            ids = _optional_json(self._folder / name).get("eos_token_id")
            found.update(ids if isinstance(ids, list) else [ids] if isinstance(ids, int) else [])
        text = _text(self._settings.get("eos_token"))
        own = self._backend.token_to_id(text) if text else None
        return frozenset(found | ({own} if own is not None else set()))


class _FolderDetokenizer:
    """Decodes a short window twice, as vLLM and TGI do: byte-level and sentencepiece
    tokens only make text together with their neighbours."""

    def __init__(self, tokenizer: FolderTokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._start = 0
        self._read = 0

    def push(self, token: int) -> str:
        self._tokens.append(token)
        before, after = self._window()
        # U+FFFD at the end is a character whose bytes have not all come.
        if len(after) <= len(before) or after.endswith("\ufffd"):
            return ""
        self._start, self._read = self._read, len(self._tokens)
        return after[len(before) :]

    def finish(self) -> str:
        before, after = self._window()
        self._start = self._read = len(self._tokens)
        return after[len(before) :]

    def _window(self) -> tuple[str, str]:
        before = self._tokenizer.decode(self._tokens[self._start : self._read])
        return before, self._tokenizer.decode(self._tokens[self._start :])


def load_tokenizer(name_or_folder: str | Path) -> Tokenizer:
    """The tokenizer of ``geokv-tiny``, of a fetched model or of a checkpoint folder.

    Raises:
        EngineError: the folder has none, or the model has not been fetched.
    """
    if str(name_or_folder) == "geokv-tiny":
        return ByteTokenizer()
    model = find(str(name_or_folder))
    folder = require(model) if model else Path(name_or_folder).expanduser()
    if not folder.is_dir():
        raise EngineError(f"model folder {folder} does not exist")
    return FolderTokenizer(folder)


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _text(token: Any) -> str:
    """A special token is a string, or a mapping with its ``content``."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")
