"""The shapes of OpenAI's completion API that a site takes.

What is not supported is refused by name, never ignored: an answer that silently left
out a parameter would be wrong. A parameter that is sent with the value it has anyway
changes nothing and is taken, since stock clients and load generators send many of them.
https://platform.openai.com/docs/api-reference, and vLLM's extensions to it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from geokv.engine.sampling import SamplingParams

MAX_LOGPROBS = 20
"""As vLLM's default; OpenAI's own bound is 5 for completions and 20 for chat."""
MAX_CHOICES = 128
"""``n``, as OpenAI bounds it."""
MAX_PROMPTS = 2048
"""Of one request, as OpenAI bounds lists of inputs."""
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 1000

Prompt = str | list[int]


def _neutral(*values: Any) -> Any:
    """Takes nothing but ``values`` and null: the parameter is not supported otherwise."""

    def check(given: Any) -> Any:
        if given is not None and not any(given == value for value in values):
            shown = " or ".join(repr(value) for value in values)
            raise ValueError(f"is not supported here; leave it out or send {shown or 'null'}")
        return given

    return AfterValidator(check)


def _prompts(given: Any) -> list[Prompt]:
    """Each prompt by itself, as text or as token ids."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, list) and given:
        if _are_ids(given):
            return [given]
        if len(given) > MAX_PROMPTS:
            raise ValueError(f"must be at most {MAX_PROMPTS} prompts, got {len(given)}")
        if all(isinstance(one, str) for one in given):
            return given
        if all(isinstance(one, list) and one and _are_ids(one) for one in given):
            return given
    raise ValueError("must be text, token ids ≥ 0, a list of texts or a list of lists of token ids")


def _are_ids(given: list[Any]) -> bool:
    # Not isinstance: True is an int as well.
    return all(type(one) is int and one >= 0 for one in given)


def _stops(given: Any) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if texts is None:
        return []
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise ValueError("must be a string or a list of strings")
    if len(texts) > MAX_STOPS:
        raise ValueError(f"must be at most {MAX_STOPS} strings, got {len(texts)}")
    if any(not 1 <= len(one) <= MAX_STOP_CHARACTERS for one in texts):
        raise ValueError(f"a string must have 1 to {MAX_STOP_CHARACTERS} characters")
    return texts


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class StreamOptions(_Strict):
    """``stream_options`` of OpenAI's API."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    """vLLM's: usage so far with every chunk."""


class Request(_Strict):
    """What both endpoints share."""

    model: str
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    """0 and -1 keep every token (vLLM's)."""
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Annotated[list[str], BeforeValidator(_stops)] = []
    stop_token_ids: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=64)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    """vLLM's; taken where it changes nothing, which is with ``ignore_eos`` and no stop."""

    presence_penalty: Annotated[Any, _neutral(0)] = None
    frequency_penalty: Annotated[Any, _neutral(0)] = None
    repetition_penalty: Annotated[Any, _neutral(1)] = None
    length_penalty: Annotated[Any, _neutral(1)] = None
    min_p: Annotated[Any, _neutral(0)] = None
    use_beam_search: Annotated[Any, _neutral(False)] = None
    logit_bias: Annotated[Any, _neutral({})] = None
    bad_words: Annotated[Any, _neutral([])] = None
    response_format: Annotated[Any, _neutral({"type": "text"})] = None
    skip_special_tokens: Annotated[Any, _neutral(True)] = None
    spaces_between_special_tokens: Annotated[Any, _neutral(True)] = None
    include_stop_str_in_output: Annotated[Any, _neutral(False)] = None
    truncate_prompt_tokens: Annotated[Any, _neutral()] = None
    prompt_logprobs: Annotated[Any, _neutral()] = None
    return_token_ids: Annotated[Any, _neutral(False)] = None
    return_tokens_as_token_ids: Annotated[Any, _neutral(False)] = None
    priority: Annotated[Any, _neutral(0)] = None
    service_tier: Annotated[Any, _neutral("auto", "default")] = None

    user: str | None = None
    """A label of the client's own; it changes no answer."""
    metadata: dict[str, str] | None = None
    """The same."""

    @model_validator(mode="after")
    def _fits_together(self) -> Request:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options: only with stream: true")
        if self.min_tokens and (not self.ignore_eos or self.stop or self.stop_token_ids):
            raise ValueError("min_tokens: is supported only with ignore_eos and without stop")
        return self

    @property
    def choices(self) -> int:
        """Answers to each prompt."""
        return self.n or 1

    def sampling(self, max_tokens: int, logprobs: int | None) -> SamplingParams:
        """Sampling parameters. Without a seed an answer is drawn with seed 0: repeatable."""
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(0, self.top_k or 0),
            seed=(self.seed or 0) % 2**63,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            stop=tuple(self.stop),
            ignore_eos=self.ignore_eos,
            n=self.choices,
            logprobs=logprobs,
        )


class CompletionRequest(Request):
    """``POST /v1/completions``; a prompt may be text or token ids."""

    prompt: Annotated[list[Prompt], BeforeValidator(_prompts)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool = False

    best_of: Annotated[Any, _neutral(1)] = None
    suffix: Annotated[Any, _neutral("")] = None
    add_special_tokens: Annotated[Any, _neutral(True)] = None

    @model_validator(mode="after")
    def _echoes(self) -> CompletionRequest:
        if self.echo and self.logprobs is not None:
            raise ValueError("echo: is not supported together with logprobs")
        return self

    @property
    def limit(self) -> int:
        """Tokens of an answer at most; 16 unless asked otherwise, as OpenAI has it."""
        return self.max_tokens or 16

    @property
    def limit_name(self) -> str:
        """What the client calls that."""
        return "max_tokens"

    @property
    def top_logprobs_wanted(self) -> int | None:
        """How many most likely tokens to report with each; None for no log probabilities."""
        return self.logprobs


def _text(given: Any) -> Any:
    """Text that is written whole or as text parts."""
    if isinstance(given, str):
        return given
    if isinstance(given, list):
        parts = [one if isinstance(one, dict) else {} for one in given]
        texts = [one.get("text") for one in parts if one.get("type") == "text"]
        strings = [text for text in texts if isinstance(text, str)]
        if len(strings) == len(given):
            return "".join(strings)
    raise ValueError('must be text, or a list of {"type": "text", "text": …}')


class ChatMessage(_Strict):
    """One message of a chat; only text."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_text)]
    name: str | None = None

    def plain(self) -> dict[str, str]:
        """Role and text, as chat templates take them."""
        return {
            "role": "system" if self.role == "developer" else self.role,
            "content": self.content,
        }


class ChatRequest(Request):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None

    tools: Annotated[Any, _neutral([])] = None
    tool_choice: Annotated[Any, _neutral("none", "auto")] = None
    parallel_tool_calls: Annotated[Any, _neutral(True, False)] = None
    functions: Annotated[Any, _neutral([])] = None
    modalities: Annotated[Any, _neutral(["text"])] = None
    store: Annotated[Any, _neutral(False)] = None
    add_generation_prompt: Annotated[Any, _neutral(True)] = None
    continue_final_message: Annotated[Any, _neutral(False)] = None
    add_special_tokens: Annotated[Any, _neutral(False)] = None
    echo: Annotated[Any, _neutral(False)] = None

    @model_validator(mode="after")
    def _one_limit(self) -> ChatRequest:
        if (
            self.max_tokens
            and self.max_completion_tokens
            and self.max_tokens != self.max_completion_tokens
        ):
            raise ValueError("max_completion_tokens: max_tokens says otherwise; give one of them")
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs: only with logprobs: true")
        return self

    @property
    def limit(self) -> int:
        """Tokens of an answer at most; 256 unless asked otherwise."""
        return self.max_completion_tokens or self.max_tokens or 256

    @property
    def limit_name(self) -> str:
        """What the client calls that."""
        return "max_completion_tokens" if self.max_completion_tokens else "max_tokens"

    @property
    def top_logprobs_wanted(self) -> int | None:
        """How many most likely tokens to report with each; None for no log probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


class TokenizeRequest(_Strict):
    """``POST /tokenize``, vLLM's: text as the model sees it."""

    model: str | None = None
    prompt: str
    add_special_tokens: Annotated[Any, _neutral(True)] = None


class DetokenizeRequest(_Strict):
    """``POST /detokenize``, vLLM's."""

    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0)]]
