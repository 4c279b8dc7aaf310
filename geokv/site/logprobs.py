"""Log probabilities in the two forms OpenAI gives them."""

from __future__ import annotations

from typing import Any

from geokv.engine.generation import TokenEvent
from geokv.engine.tokenizer import Tokenizer

LEAST = -9999.0
"""In place of minus infinity, which JSON has not; vLLM's figure."""


class TokenNames:
    """What a token is called: its text, or ``token_id:N`` (vLLM's form) where it has none.

    Special tokens have no text, and neither has a token that is part of a character.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, tuple[str, list[int] | None]] = {}

    def __call__(self, token: int) -> tuple[str, list[int] | None]:
        """Name, and the UTF-8 bytes of the text or None."""
        found = self._known.get(token)
        if found is None:
            text = self._tokenizer.decode([token])
            if not text or "\ufffd" in text:
                found = f"token_id:{token}", None
            else:
                found = text, list(text.encode())
            self._known[token] = found
        return found


class CompletionLogprobs:
    """``logprobs`` of one answer of ``/v1/completions``, built as its tokens come."""

    def __init__(self, names: TokenNames, tokenizer: Tokenizer) -> None:
        self._names = names
        self._text = tokenizer.detokenizer()
        self._offset = 0

    def take(self, event: TokenEvent) -> dict[str, Any] | None:
        """This token's part; None when it carries no log probability."""
        if event.logprob is None:
            return None
        name, as_bytes = self._names(event.token)
        top = {self._names(token)[0]: _finite(value) for token, value in event.logprob.top}
        top.setdefault(name, _finite(event.logprob.logprob))
        before, text = self._offset, self._text.push(event.token)
        self._offset += len(text)
        # A character that was given up on may come out before the token's own text.
        whole = as_bytes is not None and text.endswith(name)
        part = {
            "tokens": [name],
            "token_logprobs": [_finite(event.logprob.logprob)],
            "top_logprobs": [top],
            "text_offset": [self._offset - len(name) if whole else before],
        }
        return part

    @staticmethod
    def join(parts: list[dict[str, Any]]) -> dict[str, Any]:
        """The parts of a whole answer as one."""
        keys = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        return {key: [one for part in parts for one in part[key]] for key in keys}


class ChatLogprobs:
    """``logprobs`` of one answer of ``/v1/chat/completions``."""

    def __init__(self, names: TokenNames) -> None:
        self._names = names

    def take(self, event: TokenEvent) -> dict[str, Any] | None:
        """This token's part; None when it carries no log probability."""
        if event.logprob is None:
            return None
        top = [self._entry(token, value) for token, value in event.logprob.top]
        own = self._entry(event.token, event.logprob.logprob)
        return {"content": [{**own, "top_logprobs": top}]}

    @staticmethod
    def join(parts: list[dict[str, Any]]) -> dict[str, Any]:
        """The parts of a whole answer as one."""
        return {"content": [one for part in parts for one in part["content"]]}

    def _entry(self, token: int, value: float) -> dict[str, Any]:
        name, as_bytes = self._names(token)
        return {"token": name, "logprob": _finite(value), "bytes": as_bytes}


def _finite(value: float) -> float:
    return max(value, LEAST)
