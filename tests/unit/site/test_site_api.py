"""A site's front door as stock clients see it: the ``openai`` package and ``httpx``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import pytest
from site_processes import ACME, Site, SiteRoom, prompt, wait_for

MODEL = "geokv-tiny"


@pytest.fixture(scope="module")
def site(room: SiteRoom) -> Site:
    return room.start(room.settings("a"))


@pytest.fixture(scope="module")
def slow_site(room: SiteRoom) -> Site:
    """Charges 8 ms and more per token, and gives every request a second."""
    return room.start(room.settings("a", compute="charged", threaded=True, request_deadline_s=1))


@pytest.fixture
def client(site: Site) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{site.url}/v1", api_key=ACME.api_key, max_retries=0) as made:
        yield made


@pytest.fixture
async def async_client(site: Site) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{site.url}/v1", api_key=ACME.api_key, max_retries=0
    ) as made:
        yield made


@pytest.fixture
def http(site: Site) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=site.url,
        headers={"Authorization": f"Bearer {ACME.api_key}"},
        trust_env=False,
        timeout=20,
    ) as made:
        yield made


def completion(http: httpx.Client, **body: Any) -> httpx.Response:
    return http.post("/v1/completions", json={"model": MODEL, "temperature": 0, **body})


# -- answers -------------------------------------------------------------------


def test_completion_streamed_is_the_completion_in_pieces(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "prompt": "Light takes half a millisecond for 100 km.",
        "max_tokens": 12,
        "temperature": 0,
    }
    whole = client.completions.create(**asked)
    chunks = list(client.completions.create(**asked, stream=True))
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 12
    assert whole.usage.prompt_tokens == 1 + len(asked["prompt"])
    assert whole.usage.total_tokens == 13 + len(asked["prompt"])
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert len(chunks) == 12
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 11 + ["length"]
    assert chunks[0].object == whole.object == "text_completion"


def test_chat_streamed_is_the_chat_in_pieces(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": [{"type": "text", "text": "How far?"}]},
        ],
        "max_completion_tokens": 8,
        "temperature": 0,
    }
    whole = client.chat.completions.create(**asked)
    chunks = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    assert whole.object == "chat.completion"
    assert whole.choices[0].message.role == "assistant"
    body, last = chunks[:-1], chunks[-1]
    assert body[0].choices[0].delta.role == "assistant"
    assert body[1].choices[0].delta.role is None
    text = "".join(chunk.choices[0].delta.content or "" for chunk in body)
    assert text == whole.choices[0].message.content
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert all(chunk.usage is None for chunk in body)
    assert last.choices == []
    assert last.usage is not None and whole.usage is not None
    assert last.usage.completion_tokens == whole.usage.completion_tokens == 8


async def test_async_client_streams_the_same(
    async_client: openai.AsyncOpenAI, client: openai.OpenAI
) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": "abc", "max_tokens": 6, "temperature": 0}
    stream = await async_client.completions.create(**asked, stream=True)
    text = "".join([chunk.choices[0].text async for chunk in stream])
    assert text == client.completions.create(**asked).choices[0].text
    answer = await async_client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "abc"}], max_tokens=3
    )
    assert answer.usage is not None and answer.usage.completion_tokens == 3


def test_token_ids_are_the_text_they_spell(client: openai.OpenAI) -> None:
    text = "a prompt as text"
    ids = [256, *text.encode()]
    by_text = client.completions.create(model=MODEL, prompt=text, max_tokens=5, temperature=0)
    by_ids = client.completions.create(model=MODEL, prompt=ids, max_tokens=5, temperature=0)
    assert by_ids.choices[0].text == by_text.choices[0].text
    assert by_ids.usage is not None and by_ids.usage.prompt_tokens == len(ids)


@pytest.mark.parametrize("form", ["text", "ids"])
def test_several_prompts_are_answered_each(client: openai.OpenAI, form: str) -> None:
    texts = ["first", "the second", "3"]
    prompts: Any = texts if form == "text" else [list(text.encode()) for text in texts]
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 4, "temperature": 0}
    together = client.completions.create(prompt=prompts, **asked)
    alone = [client.completions.create(prompt=one, **asked) for one in prompts]
    assert [choice.index for choice in together.choices] == [0, 1, 2]
    assert [c.text for c in together.choices] == [one.choices[0].text for one in alone]
    assert together.usage is not None
    assert together.usage.prompt_tokens == sum(
        one.usage.prompt_tokens for one in alone if one.usage
    )
    streamed = {0: "", 1: "", 2: ""}
    for chunk in client.completions.create(prompt=prompts, stream=True, **asked):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert list(streamed.values()) == [choice.text for choice in together.choices]


def test_seed_and_stop_are_obeyed(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": "dice", "max_tokens": 24, "temperature": 1}

    def roll(seed: int) -> str:
        return client.completions.create(**asked, seed=seed).choices[0].text

    assert roll(1) == roll(1)
    assert roll(1) != roll(2)
    text = roll(1)
    stop = text[3:5]
    cut = client.completions.create(**asked, seed=1, stop=stop)
    assert cut.choices[0].text == text[: text.index(stop)]
    assert cut.choices[0].finish_reason == "stop"


def test_usage_tells_cached_tokens_after_a_repeat(client: openai.OpenAI) -> None:
    ids = prompt(100, seed=5)
    first, again = (
        client.completions.create(model=MODEL, prompt=ids, max_tokens=2, temperature=0)
        for _ in range(2)
    )
    cached = [one.usage.prompt_tokens_details.cached_tokens for one in (first, again)]  # type: ignore[union-attr]
    assert cached == [0, 96]
    assert first.choices[0].text == again.choices[0].text


def test_models_and_health(client: openai.OpenAI, site: Site) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    answer = httpx.get(f"{site.url}/health", trust_env=False)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "site": "a"})


def test_request_id_is_echoed_and_a_foul_one_replaced(http: httpx.Client, site: Site) -> None:
    answer = http.post(
        "/v1/completions",
        json={"model": MODEL, "prompt": "x", "max_tokens": 1},
        headers={"X-Request-Id": "trace/7"},
    )
    assert answer.headers["x-request-id"] == "trace/7"
    assert answer.json()["id"] == "cmpl-trace/7"
    assert site.record("trace/7")["prompt_tokens"] == 2
    foul = http.post(
        "/v1/completions",
        json={"model": MODEL, "prompt": "x", "max_tokens": 1},
        headers={"X-Request-Id": "a b" + "c" * 200},
    )
    assert foul.headers["x-request-id"].startswith("req-")


# -- refusals ------------------------------------------------------------------


@pytest.mark.parametrize("key", ["wrong", ""])
def test_unknown_key_is_401_and_runs_nothing(site: Site, key: str) -> None:
    before = site.engine()["prefill_tokens"]
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    for method, path in (("POST", "/v1/completions"), ("GET", "/v1/models")):
        answer = httpx.request(
            method,
            site.url + path,
            headers=headers,
            json={"model": MODEL, "prompt": "x"},
            trust_env=False,
        )
        assert answer.status_code == 401
        error = answer.json()["error"]
        assert error["type"] == "authentication_error"
        assert "Bearer" in error["message"]
    assert site.engine()["prefill_tokens"] == before


def test_openai_client_sees_a_wrong_key_as_such(site: Site) -> None:
    with (
        openai.OpenAI(base_url=f"{site.url}/v1", api_key="no", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError, match="unknown API key"),
    ):
        client.models.list()


def test_unknown_model_is_404_naming_both(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match=r"geokv-tiny.*gpt-9") as caught:
        client.completions.create(model="gpt-9", prompt="x")
    assert caught.value.param == "model"


def test_openai_client_sees_a_long_prompt_as_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="8191") as caught:
        client.completions.create(model=MODEL, prompt=prompt(16_384), max_tokens=1)
    assert caught.value.param == "prompt"


# -- ends ----------------------------------------------------------------------


def test_client_that_leaves_mid_stream_frees_its_blocks(room: SiteRoom) -> None:
    site = room.start(room.settings("a", compute="charged", threaded=True, request_deadline_s=60))
    body = {
        "model": MODEL,
        "prompt": prompt(200),
        "max_tokens": 4000,
        "stream": True,
        "ignore_eos": True,
    }
    headers = {"Authorization": f"Bearer {ACME.api_key}", "X-Request-Id": "leaver"}
    with (
        httpx.Client(trust_env=False, timeout=20) as http,
        http.stream("POST", f"{site.url}/v1/completions", json=body, headers=headers) as answer,
    ):
        lines = answer.iter_lines()
        seen = [next(lines) for _ in range(6)]
    assert sum(line.startswith("data: ") for line in seen) == 3
    wait_for("its blocks", lambda: site.engine()["blocks_pinned"] == 0, seconds=3)
    assert site.get("/integrity") == {"integrity": "ok"}
    record = site.record("leaver")
    assert record["error"] == "the client went away"
    assert len(record["output_ids"]) < 500


def test_client_that_leaves_before_the_first_token_stops_the_work(room: SiteRoom) -> None:
    site = room.start(room.settings("a", compute="charged", threaded=True, request_deadline_s=60))
    headers = {"Authorization": f"Bearer {ACME.api_key}", "X-Request-Id": "early"}
    body = {"model": MODEL, "prompt": prompt(300), "max_tokens": 4000, "ignore_eos": True}
    with httpx.Client(trust_env=False) as http, pytest.raises(httpx.ReadTimeout):
        http.post(f"{site.url}/v1/completions", json=body, headers=headers, timeout=0.5)
    wait_for("its blocks", lambda: site.engine()["blocks_pinned"] == 0, seconds=3)
    assert len(site.record("early")["output_ids"]) < 500


def test_deadline_is_a_504_in_time(slow_site: Site) -> None:
    with (
        openai.OpenAI(
            base_url=f"{slow_site.url}/v1", api_key=ACME.api_key, max_retries=0
        ) as client,
        pytest.raises(openai.InternalServerError, match="deadline") as caught,
    ):
        client.completions.create(
            model=MODEL,
            prompt=prompt(64),
            max_tokens=1000,
            extra_body={"ignore_eos": True},
            timeout=3,
        )
    assert caught.value.status_code == 504
    assert caught.value.type == "timeout"
    # The step that was under way when time was up comes to its end first.
    wait_for("its blocks", lambda: slow_site.engine()["blocks_pinned"] == 0, seconds=3)


def test_deadline_before_the_first_token_is_a_504_also_for_a_stream(slow_site: Site) -> None:
    body = {"model": MODEL, "prompt": prompt(7_500), "stream": True}
    answer = httpx.post(
        f"{slow_site.url}/v1/completions",
        json=body,
        headers={"Authorization": f"Bearer {ACME.api_key}", "X-Request-Timeout-S": "0.2"},
        trust_env=False,
        timeout=20,
    )
    assert answer.status_code == 504
    assert "deadline" in answer.json()["error"]["message"]


def test_error_inside_a_stream_reaches_the_client(slow_site: Site) -> None:
    got = ""
    with (
        openai.OpenAI(
            base_url=f"{slow_site.url}/v1", api_key=ACME.api_key, max_retries=0
        ) as client,
        pytest.raises(openai.APIError, match="deadline"),
    ):
        for chunk in client.completions.create(
            model=MODEL,
            prompt="go on",
            max_tokens=1000,
            stream=True,
            extra_body={"ignore_eos": True},
        ):
            got += chunk.choices[0].text
    assert got
    body = {
        "model": MODEL,
        "prompt": "go on",
        "max_tokens": 1000,
        "stream": True,
        "ignore_eos": True,
    }
    raw = httpx.post(
        f"{slow_site.url}/v1/completions",
        json=body,
        headers={"Authorization": f"Bearer {ACME.api_key}"},
        trust_env=False,
        timeout=20,
    )
    events = [line for line in raw.text.splitlines() if line]
    assert json.loads(events[-1].removeprefix("data: "))["error"]["type"] == "timeout"
    assert "data: [DONE]" not in events
