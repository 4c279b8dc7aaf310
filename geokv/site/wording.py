"""Answers in OpenAI's words: what differs between its two endpoints."""

from __future__ import annotations

from typing import Any, Protocol

from geokv.engine.generation import TokenEvent
from geokv.engine.tokenizer import Tokenizer
from geokv.site.logprobs import ChatLogprobs, CompletionLogprobs, TokenNames

CREATED_S = 1_767_225_600
"""``created`` of everything: fixed, as nothing but a run folder's label reads a wall clock."""


class Wording(Protocol):
    """One endpoint's way to say it."""

    prefix: str
    kind: str
    chunk_kind: str
    model: str

    def logprobs(self, tokenizer: Tokenizer) -> CompletionLogprobs | ChatLogprobs:
        """Fresh, for one answer."""
        ...

    def choice(self, index: int, text: str, finish: str | None, logprobs: Any) -> dict[str, Any]:
        """A whole answer."""
        ...

    def delta(self, index: int, event: TokenEvent, logprobs: Any) -> dict[str, Any]:
        """One token of an answer."""
        ...


class Completion:
    """Wording of ``/v1/completions``.

    Args:
        echoes: for each prompt what its answers begin with; empty for nothing.
        choices: answers to each prompt.
    """

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __init__(
        self, model: str, names: TokenNames, echoes: list[str] | None = None, choices: int = 1
    ) -> None:
        self.model = model
        self._names = names
        self._echoes = echoes or []
        self._choices = choices

    def logprobs(self, tokenizer: Tokenizer) -> CompletionLogprobs:
        return CompletionLogprobs(self._names, tokenizer)

    def choice(self, index: int, text: str, finish: str | None, logprobs: Any) -> dict[str, Any]:
        return self._said(index, self._echo(index) + text, finish, logprobs)

    def delta(self, index: int, event: TokenEvent, logprobs: Any) -> dict[str, Any]:
        text = self._echo(index) + event.text if event.index == 0 else event.text
        return self._said(index, text, event.finish, logprobs)

    def _said(self, index: int, text: str, finish: str | None, logprobs: Any) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def _echo(self, index: int) -> str:
        return self._echoes[index // self._choices] if self._echoes else ""


class Chat:
    """Wording of ``/v1/chat/completions``."""

    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, model: str, names: TokenNames) -> None:
        self.model = model
        self._names = names

    def logprobs(self, tokenizer: Tokenizer) -> ChatLogprobs:
        return ChatLogprobs(self._names)

    def choice(self, index: int, text: str, finish: str | None, logprobs: Any) -> dict[str, Any]:
        return {
            "index": index,
            "message": {"role": "assistant", "content": text},
            "logprobs": logprobs,
            "finish_reason": finish,
        }

    def delta(self, index: int, event: TokenEvent, logprobs: Any) -> dict[str, Any]:
        delta = {"content": event.text}
        if event.index == 0:
            delta = {"role": "assistant", **delta}
        return {
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": event.finish,
        }


def usage(
    prompt_tokens: int, completion_tokens: int, cached_tokens: int | None = None
) -> dict[str, Any]:
    """Token counts as OpenAI reports them.

    Args:
        cached_tokens: prompt tokens that were not computed; None while that is not known.
    """
    counts: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    if cached_tokens is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
    return counts
