"""The shapes of OpenAI's completion API that a site takes and gives.

What is not supported is refused by name, never ignored: an answer that silently left
out a parameter would be wrong. https://platform.openai.com/docs/api-reference
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from geokv.engine.sampling import SamplingParams

TokenId = Annotated[int, Field(ge=0)]


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    include_usage: bool = False


class Request(BaseModel):
    """What both endpoints share."""

    model_config = ConfigDict(extra="forbid")

    model: str
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    user: str | None = None
    n: Literal[1] = 1

    def sampling(self, max_tokens: int) -> SamplingParams:
        """Sampling parameters. Without a seed an answer is drawn with seed 0: repeatable."""
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            seed=self.seed or 0,
            stop=stops,
            ignore_eos=self.ignore_eos,
        )


class CompletionRequest(Request):
    """``POST /v1/completions``; a prompt may be text or token ids."""

    prompt: str | list[TokenId] | list[str] | list[list[TokenId]]
    max_tokens: Annotated[int, Field(ge=1)] = 16

    def prompts(self) -> list[str | list[int]]:
        """Each prompt by itself, as text or as token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)  # type: ignore[arg-type]


class TextPart(BaseModel):
    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    def plain(self) -> dict[str, str]:
        """Role and text, as chat templates take them."""
        text = (
            self.content
            if isinstance(self.content, str)
            else "".join(part.text for part in self.content)
        )
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ChatRequest(Request):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _one_limit(self) -> ChatRequest:
        if self.max_tokens and self.max_completion_tokens:
            raise ValueError("max_tokens and max_completion_tokens: give one of them")
        return self

    @property
    def limit(self) -> int:
        """Tokens of the answer at most."""
        return self.max_completion_tokens or self.max_tokens or 256


def usage(prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """Token counts as OpenAI reports them, cached prompt tokens included."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def error_body(message: str, kind: str, param: str | None = None) -> dict[str, Any]:
    """An error as OpenAI's clients parse it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": None}}
