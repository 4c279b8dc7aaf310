"""Several answers at once, log probabilities, limits and queues, as stock clients see them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from site_processes import ACME, Site, SiteRoom, prompt, wait_for

MODEL = "geokv-tiny"
AUTH = {"Authorization": f"Bearer {ACME.api_key}"}


@pytest.fixture(scope="module")
def site(room: SiteRoom) -> Site:
    return room.start(room.settings("a"))


@pytest.fixture(scope="module")
def client(site: Site) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{site.url}/v1", api_key=ACME.api_key, max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def http(site: Site) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site.url, headers=AUTH, trust_env=False, timeout=30) as made:
        yield made


ASKED: dict[str, Any] = {"model": MODEL, "max_tokens": 6, "temperature": 1, "seed": 11}


# -- choices -----------------------------------------------------------------------


def test_choices_of_all_prompts_are_numbered_as_openai_does(client: openai.OpenAI) -> None:
    prompts = ["first", "the second"]
    together = client.completions.create(prompt=prompts, n=3, **ASKED)
    assert [choice.index for choice in together.choices] == list(range(6))
    alone = [client.completions.create(prompt=one, n=3, **ASKED) for one in prompts]
    texts = [choice.text for answer in alone for choice in answer.choices]
    assert [choice.text for choice in together.choices] == texts
    assert len(set(texts)) == 6
    assert together.usage is not None
    assert together.usage.prompt_tokens == 6 + 11
    counts = [answer.usage.completion_tokens for answer in alone if answer.usage]
    assert together.usage.completion_tokens == sum(counts)


def test_choice_i_is_the_answer_to_seed_plus_i(client: openai.OpenAI) -> None:
    three = client.completions.create(prompt="dice", n=3, **ASKED).choices
    single = client.completions.create(prompt="dice", **{**ASKED, "seed": 13}).choices[0]
    assert three[2].text == single.text
    assert three[0].text != single.text


@pytest.mark.parametrize("logprobs", [False, True])
def test_streamed_choices_are_the_whole_ones_in_pieces(
    client: openai.OpenAI, logprobs: bool
) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "How far?"}],
        "max_tokens": 8,
        "n": 3,
        "seed": 5,
        **({"logprobs": True, "top_logprobs": 3} if logprobs else {}),
    }
    whole = client.chat.completions.create(**asked)
    stream = client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    texts, roles, finishes, said = ["", "", ""], [0, 0, 0], [None] * 3, [[], [], []]
    for chunk in stream:
        if not chunk.choices:
            assert chunk.usage == whole.usage
        for part in chunk.choices:
            texts[part.index] += part.delta.content or ""
            roles[part.index] += part.delta.role == "assistant"
            finishes[part.index] = part.finish_reason or finishes[part.index]
            if part.logprobs is not None:
                said[part.index] += part.logprobs.content
    assert texts == [choice.message.content for choice in whole.choices]
    assert roles == [1, 1, 1]
    assert finishes == [choice.finish_reason for choice in whole.choices]
    if logprobs:
        assert said == [choice.logprobs.content for choice in whole.choices]
        assert all(said)


def test_prompts_are_computed_side_by_side(site: Site, http: httpx.Client) -> None:
    """Eight answers in about as many steps as one."""
    body = {"model": MODEL, "max_tokens": 20, "ignore_eos": True}
    before = site.engine()["steps"]
    http.post("/v1/completions", json={**body, "prompt": "one"}).raise_for_status()
    one = site.engine()["steps"] - before
    several = {**body, "prompt": ["a", "b", "c", "d"], "n": 2}
    http.post("/v1/completions", json=several).raise_for_status()
    assert one <= site.engine()["steps"] - before - one <= one + 3


# -- log probabilities -----------------------------------------------------------------


def test_greedy_token_is_the_most_likely_and_probabilities_are_such(
    client: openai.OpenAI,
) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": "abc", "max_tokens": 12, "temperature": 0}
    plain = client.completions.create(**asked)
    answer = client.completions.create(**asked, logprobs=20)
    assert answer.choices[0].text == plain.choices[0].text
    said = answer.choices[0].logprobs
    assert said is not None and said.tokens and said.token_logprobs and said.top_logprobs
    assert plain.choices[0].logprobs is None
    assert len(said.tokens) == answer.usage.completion_tokens  # type: ignore[union-attr]
    for token, own, top in zip(said.tokens, said.token_logprobs, said.top_logprobs, strict=True):
        assert len(top) == 20
        assert top[token] == own == max(top.values())
        assert 0 < sum(math.exp(value) for value in top.values()) <= 1 + 1e-6


def test_offsets_point_at_the_tokens_in_the_text(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt="abc", max_tokens=60, seed=4, logprobs=0, temperature=1
    )
    text, said = answer.choices[0].text, answer.choices[0].logprobs
    assert said is not None and said.tokens and said.text_offset and said.top_logprobs
    named = 0
    for token, offset, top in zip(said.tokens, said.text_offset, said.top_logprobs, strict=True):
        assert list(top) == [token]
        if token.startswith("token_id:"):
            named += 1
        else:
            assert text[offset : offset + len(token)] == token
    assert 0 < named < len(said.tokens)
    assert "\ufffd" not in "".join(said.tokens)


def test_drawn_token_is_reported_beside_the_most_likely(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "x"}],
        max_tokens=30,
        temperature=2,
        seed=2,
        logprobs=True,
        top_logprobs=1,
    )
    said = answer.choices[0].logprobs
    assert said is not None and said.content
    unlikely = [one for one in said.content if one.token != one.top_logprobs[0].token]
    assert unlikely
    assert all(one.logprob <= one.top_logprobs[0].logprob for one in said.content)
    for one in said.content:
        assert one.bytes is None or bytes(one.bytes).decode() == one.token


# -- what load generators send ------------------------------------------------------------


def test_neutral_values_change_nothing(http: httpx.Client) -> None:
    body = {"model": MODEL, "prompt": "x", "max_tokens": 4, "temperature": 0}
    plain = http.post("/v1/completions", json=body).json()
    neutral = {
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "best_of": 1,
        "logit_bias": {},
        "min_p": 0,
        "top_k": -1,
        "echo": False,
        "suffix": None,
        "stop": None,
        "logprobs": None,
        "stream": False,
        "stream_options": None,
        "use_beam_search": False,
        "skip_special_tokens": True,
        "response_format": {"type": "text"},
        "user": "somebody",
        "metadata": {"run": "1"},
        "n": 1,
    }
    answer = http.post("/v1/completions", json={**body, **neutral})
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"] == plain["choices"]


def test_echo_puts_the_prompt_before_each_answer(client: openai.OpenAI) -> None:
    plain = client.completions.create(prompt=["one", "two"], n=2, **ASKED)
    echoed = client.completions.create(prompt=["one", "two"], n=2, echo=True, **ASKED)
    starts = ["one", "one", "two", "two"]
    wanted = [start + choice.text for start, choice in zip(starts, plain.choices, strict=True)]
    assert [choice.text for choice in echoed.choices] == wanted
    streamed = [""] * 4
    for chunk in client.completions.create(
        prompt=[list(b"one"), list(b"two")], n=2, echo=True, stream=True, **ASKED
    ):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert [text[:3] for text in streamed] == starts


def test_usage_comes_with_every_chunk_where_asked(http: httpx.Client) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {**ASKED, "prompt": "x", "n": 2, "stream": True, "stream_options": options}
    lines = http.post("/v1/completions", json=body).text.split("\n\n")
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == [*range(1, 13), 12]
    assert {chunk["usage"]["prompt_tokens"] for chunk in chunks} == {2}
    assert chunks[-1]["choices"] == []


def test_models_say_how_long_a_request_may_be(http: httpx.Client) -> None:
    card = http.get("/v1/models").json()["data"][0]
    assert card["max_model_len"] == 512 * 16
    assert http.get(f"/v1/models/{MODEL}").json() == card
    assert http.get("/version").json()["version"]


def test_tokenize_and_back(http: httpx.Client) -> None:
    found = http.post("/tokenize", json={"model": MODEL, "prompt": "dé"}).json()
    assert found == {"count": 4, "max_model_len": 8192, "tokens": [256, 100, 195, 169]}
    again = http.post("/detokenize", json={"model": MODEL, "tokens": found["tokens"]}).json()
    assert again == {"prompt": "dé"}
    assert http.post("/tokenize", json={"prompt": "x"}, headers={"Authorization": ""}).is_error


# -- limits ---------------------------------------------------------------------------------


def test_full_queue_is_429_with_when_to_come_back(room: SiteRoom) -> None:
    site = room.start(room.settings("a", max_running=1, max_waiting=1))
    body = {"model": MODEL, "prompt": prompt(40), "max_tokens": 120, "ignore_eos": True}

    def ask() -> httpx.Response:
        return httpx.post(
            f"{site.url}/v1/completions", json=body, headers=AUTH, trust_env=False, timeout=30
        )

    with ThreadPoolExecutor(2) as pool:
        taken = [pool.submit(ask)]
        wait_for("the first to run", lambda: site.get("/stats")["loop"]["running"] == 1)
        taken.append(pool.submit(ask))
        wait_for("the second to wait", lambda: site.get("/stats")["loop"]["waiting"] == 1)
        refused = ask()
        assert [ask().status_code, refused.status_code] == [429, 429]
        assert [one.result().status_code for one in taken] == [200, 200]
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["code"] == "overloaded"
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert "try again in" in refused.json()["error"]["message"]
    assert site.get("/stats")["loop"]["refused"] == 2
    assert ask().status_code == 200
    with (
        openai.OpenAI(base_url=f"{site.url}/v1", api_key=ACME.api_key, max_retries=0) as client,
        pytest.raises(openai.RateLimitError),
    ):
        # All prompts of a request or none: two wait where one may.
        client.completions.create(model=MODEL, prompt=["a", "b", "c", "d"], max_tokens=5)
    wait_for("free blocks", lambda: site.engine()["blocks_pinned"] == 0, seconds=3)


def test_client_may_give_a_request_less_time_and_not_more(room: SiteRoom) -> None:
    site = room.start(room.settings("a", compute="charged", threaded=True, request_deadline_s=1.5))
    body = {"model": MODEL, "prompt": "x", "max_tokens": 1000, "ignore_eos": True}
    for given, least, most in (("0.2", 0.2, 1.4), ("3600", 1.5, 8.0)):
        started = time.monotonic()
        answer = httpx.post(
            f"{site.url}/v1/completions",
            json=body,
            headers={**AUTH, "X-Request-Timeout-S": given},
            trust_env=False,
            timeout=20,
        )
        assert answer.status_code == 504
        assert least <= time.monotonic() - started < most
