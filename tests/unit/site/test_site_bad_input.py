"""Whatever a client sends: a clear error in OpenAI's form, and a worker as if nothing had been.

After every case here the site must answer the next request, its books must balance and no
block may be pinned (INV-5).
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from site_processes import ACME, Site, SiteRoom, prompt, wait_for
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from geokv.engine.tiny import TINY, random_model

# Writing a checkpoint is the engine tests' own tool.
sys.path.append(str(Path(__file__).parent.parent / "engine"))

from test_engine_weights import write

MODEL = "geokv-tiny"
POOL_TOKENS = 64 * 16
AUTH = {"Authorization": f"Bearer {ACME.api_key}"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def site(room: SiteRoom) -> Site:
    """A pool smaller than the model's context."""
    return room.start(room.settings("a", device_bytes=64 * 16 * 131_072))


@pytest.fixture(scope="module")
def http(site: Site) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site.url, headers=AUTH, trust_env=False, timeout=30) as made:
        yield made


@pytest.fixture(autouse=True)
def unharmed(site: Site, http: httpx.Client) -> Iterator[None]:
    """INV-5 after each test, and the next request is answered."""
    yield
    wait_for("free blocks", lambda: site.engine()["blocks_pinned"] == 0, seconds=5)
    assert site.get("/integrity") == {"integrity": "ok"}
    answer = http.post("/v1/completions", json={"model": MODEL, "prompt": "x", "max_tokens": 1})
    assert answer.status_code == 200, answer.text


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"] and "\n" not in body["error"]["message"]
    found: dict[str, Any] = body["error"]
    return found


# -- parameters, by name ---------------------------------------------------------

CHAT = [{"role": "user", "content": "x"}]

PARAMETERS: list[tuple[str, dict[str, Any], str, str]] = [
    ("completions", {}, "prompt", "required"),
    ("completions", {"prompt": 7}, "prompt", "must be text"),
    ("completions", {"prompt": []}, "prompt", "must be text"),
    ("completions", {"prompt": ""}, "", ""),
    ("completions", {"prompt": [[]]}, "prompt", "must be text"),
    ("completions", {"prompt": [1, "a"]}, "prompt", "must be text"),
    ("completions", {"prompt": [True]}, "prompt", "must be text"),
    ("completions", {"prompt": [-1]}, "prompt", "≥ 0"),
    ("completions", {"prompt": [70_000]}, "prompt", "not below 264"),
    ("completions", {"prompt": [10**30]}, "prompt", "not below 264"),
    ("completions", {"prompt": ["x"] * 2049}, "prompt", "at most 2048"),
    ("completions", {"prompt": "x" * POOL_TOKENS}, "prompt", "KV pool takes 1 to 1023"),
    ("completions", {"prompt": "x" * 20_000}, "prompt", "20001 tokens"),
    ("completions", {"prompt": "x", "max_tokens": 0}, "max_tokens", "greater"),
    ("completions", {"prompt": "x", "max_tokens": -5}, "max_tokens", "greater"),
    ("completions", {"prompt": "x", "max_tokens": 1023}, "max_tokens", "1022 at most"),
    ("completions", {"prompt": "x", "max_tokens": 10**30}, "max_tokens", "at most"),
    ("completions", {"prompt": "x", "max_tokens": 1.5}, "max_tokens", "integer"),
    ("completions", {"prompt": "x", "max_tokens": "5"}, "max_tokens", "integer"),
    ("completions", {"prompt": "x", "n": 0}, "n", "greater"),
    ("completions", {"prompt": "x", "n": 10**6}, "n", "less"),
    ("completions", {"prompt": "x", "temperature": 3}, "temperature", "less"),
    ("completions", {"prompt": "x", "temperature": -0.1}, "temperature", "greater"),
    ("completions", {"prompt": "x", "top_p": 0}, "top_p", "greater"),
    ("completions", {"prompt": "x", "top_k": -2}, "top_k", "greater"),
    ("completions", {"prompt": "x", "seed": 2**63}, "seed", "less"),
    ("completions", {"prompt": "x", "stop": ["a"] * 17}, "stop", "at most 16"),
    ("completions", {"prompt": "x", "stop": ""}, "stop", "1 to 1000"),
    ("completions", {"prompt": "x", "stop": ["a" * 1001]}, "stop", "1 to 1000"),
    ("completions", {"prompt": "x", "stop": 5}, "stop", "string"),
    ("completions", {"prompt": "x", "logprobs": 21}, "logprobs", "less"),
    ("completions", {"prompt": "x", "logprobs": -1}, "logprobs", "greater"),
    ("completions", {"prompt": "x", "logprobs": True}, "logprobs", "integer"),
    ("completions", {"prompt": "x", "echo": True, "logprobs": 1}, "echo", "not supported"),
    ("completions", {"prompt": "x", "logit_bias": {"1": 2}}, "logit_bias", "send {}"),
    ("completions", {"prompt": "x", "presence_penalty": 0.5}, "presence_penalty", "send 0"),
    ("completions", {"prompt": "x", "repetition_penalty": 1.1}, "repetition_penalty", "send 1"),
    ("completions", {"prompt": "x", "best_of": 2}, "best_of", "send 1"),
    ("completions", {"prompt": "x", "suffix": "y"}, "suffix", "not supported"),
    ("completions", {"prompt": "x", "min_tokens": 2}, "min_tokens", "ignore_eos"),
    ("completions", {"prompt": "x", "frobnicate": 1}, "frobnicate", "not a parameter"),
    ("completions", {"prompt": "x", "f" * 5000: 1}, "f" * 100, "not a parameter"),
    ("completions", {"prompt": "x", "stream_options": {}}, "stream_options", "stream: true"),
    (
        "completions",
        {"prompt": "x", "stream": True, "stream_options": {"include": 1}},
        "stream_options.include",
        "not a parameter",
    ),
    ("chat/completions", {}, "messages", "required"),
    ("chat/completions", {"messages": []}, "messages", "at least 1"),
    ("chat/completions", {"messages": "hello"}, "messages", "array|list"),
    ("chat/completions", {"messages": [{"content": "x"}]}, "messages.0.role", "required"),
    (
        "chat/completions",
        {"messages": [{"role": "judge", "content": "x"}]},
        "messages.0.role",
        "'user'",
    ),
    (
        "chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
        "messages.0.content",
        "must be text",
    ),
    (
        "chat/completions",
        {"messages": [{"role": "user", "content": None}]},
        "messages.0.content",
        "must be text",
    ),
    (
        "chat/completions",
        {"messages": [{"role": "user", "content": "x" * 20_000}]},
        "messages",
        "takes 1 to 1023",
    ),
    ("chat/completions", {"messages": CHAT, "tools": [{"type": "function"}]}, "tools", "send []"),
    ("chat/completions", {"messages": CHAT, "logprobs": 2}, "logprobs", "boolean"),
    ("chat/completions", {"messages": CHAT, "top_logprobs": 2}, "top_logprobs", "logprobs: true"),
    (
        "chat/completions",
        {"messages": CHAT, "logprobs": True, "top_logprobs": 21},
        "top_logprobs",
        "less",
    ),
    (
        "chat/completions",
        {"messages": CHAT, "max_tokens": 3, "max_completion_tokens": 4},
        "max_completion_tokens",
        "give one",
    ),
    (
        "chat/completions",
        {"messages": CHAT, "max_completion_tokens": 5000},
        "max_completion_tokens",
        "at most",
    ),
]


@pytest.mark.parametrize(("path", "body", "param", "words"), PARAMETERS)
def test_bad_parameter_is_400_by_name(
    http: httpx.Client, path: str, body: dict[str, Any], param: str, words: str
) -> None:
    answer = http.post(f"/v1/{path}", json={"model": MODEL, **body})
    if not param:
        # An empty text is the start token alone here, which is a prompt.
        assert answer.status_code == 200
        return
    error = error_of(answer, 400)
    assert error["param"] == param
    assert error["message"].startswith(f"{param}: ")
    assert any(word in error["message"] for word in words.split("|")), error["message"]
    assert error["type"] == "invalid_request_error"


def test_prompt_that_fits_the_pool_to_the_last_token_is_answered(http: httpx.Client) -> None:
    """The refusals above must not be for want of trying."""
    body = {"model": MODEL, "prompt": prompt(POOL_TOKENS - 2), "temperature": 0}
    answer = http.post("/v1/completions", json={**body, "max_tokens": 2, "ignore_eos": True})
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["total_tokens"] == POOL_TOKENS


# -- bodies ----------------------------------------------------------------------

_OPEN = b'{"model": "geokv-tiny", "prompt": '
BODIES: list[tuple[bytes, str]] = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"null", "object"),
    (b"[]", "object"),
    (b"7", "object"),
    (_OPEN + b'"\xff\xfe"}', "not JSON"),
    (_OPEN + b'"\xed\xa0\x80"}', "not JSON"),
    (_OPEN + b'"\\ud800"}', "not JSON"),
    (_OPEN + b'"x", "\\udfff": 1}', "not JSON"),
    (_OPEN + b'"x", "temperature": NaN}', "finite"),
    (_OPEN + b'"x", "temperature": Infinity}', "finite"),
    (_OPEN + b'"x", "top_p": 1e999}', "finite"),
    (_OPEN + b'"x", "presence_penalty": NaN}', "presence_penalty"),
    (_OPEN + b'"x"} trailing', "not JSON"),
    (_OPEN + b"[" * 50_000 + b"]" * 50_000 + b"}", "not JSON"),
    (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "not JSON"),
    (_OPEN + b"[" + b"9" * 5_000 + b"]}", "not JSON|not below"),
]


@pytest.mark.parametrize(("body", "words"), BODIES, ids=[str(i) for i in range(len(BODIES))])
def test_body_that_is_not_what_it_should_be_is_400(
    http: httpx.Client, body: bytes, words: str
) -> None:
    error = error_of(http.post("/v1/completions", content=body, headers=JSON), 400)
    assert any(word in error["message"] for word in words.split("|")), error["message"]


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "image/png"])
def test_wrong_content_type_is_415(http: httpx.Client, path: str, kind: str) -> None:
    body = b'{"model": "geokv-tiny", "prompt": "x"}'
    answer = http.post(f"/v1/{path}", content=body, headers={"Content-Type": kind})
    assert kind in error_of(answer, 415)["message"]


def test_content_type_may_name_a_charset_or_be_left_out(site: Site, http: httpx.Client) -> None:
    body = b'{"model": "geokv-tiny", "prompt": "x", "max_tokens": 1}'
    kind = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert http.post("/v1/completions", content=body, headers=kind).status_code == 200
    assert http.post("/v1/completions", content=body).status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_huge_body_is_413_and_not_kept(http: httpx.Client, chunked: bool) -> None:
    big = b'{"model": "geokv-tiny", "prompt": "' + b"x" * (9 << 20) + b'"}'
    parts: Any = iter([big[i : i + 65536] for i in range(0, len(big), 65536)])
    answer = http.post("/v1/completions", content=parts if chunked else big, headers=JSON)
    assert "8 MiB" in error_of(answer, 413)["message"]


# -- where and who -----------------------------------------------------------------


def test_wrong_path_method_and_model(http: httpx.Client) -> None:
    assert "/v1/embeddings" in error_of(http.post("/v1/embeddings", json={}), 404)["message"]
    assert "GET /v1/completions" in error_of(http.get("/v1/completions"), 405)["message"]
    assert error_of(http.delete("/v1/models"), 405)
    unknown = error_of(http.post("/v1/completions", json={"model": "gpt", "prompt": "x"}), 404)
    assert unknown["code"] == "model_not_found"
    assert "gpt" in unknown["message"] and MODEL in unknown["message"]
    assert error_of(http.get("/v1/models/gpt"), 404)["param"] == "model"


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer wrong", "Basic sk-acme", "sk-acme", "Bearer sk-acme\xe9"]
)
def test_unknown_key_is_401_before_the_body_is_looked_at(site: Site, header: str) -> None:
    headers = [(b"authorization", header.encode("latin-1")), (b"content-type", b"text/plain")]
    answer = httpx.post(
        f"{site.url}/v1/completions", content=b"{", headers=headers, trust_env=False
    )
    error = error_of(answer, 401)
    assert error["type"] == "authentication_error"
    assert error["code"] == "invalid_api_key"


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "soon", "1e999"])
def test_bad_timeout_header_is_400(http: httpx.Client, given: str) -> None:
    body = {"model": MODEL, "prompt": "x"}
    answer = http.post("/v1/completions", json=body, headers={"X-Request-Timeout-S": given})
    assert error_of(answer, 400)["param"] == "x-request-timeout-s"


def test_what_is_not_http_ends_the_connection(site: Site) -> None:
    with _connection(site) as raw:
        raw.sendall(b"\x16\x03\x01\x02\x00 hello \r\n\r\n")
        assert raw.recv(4096).startswith(b"HTTP/1.1 400")


# -- clients that leave, or stay and do not read -------------------------------------


def _connection(site: Site, receive_bytes: int | None = None) -> socket.socket:
    made = socket.socket()
    if receive_bytes is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    made.settimeout(10)
    made.connect(("127.0.0.1", site.settings.api_port))
    return made


def _request(name: str, **body: Any) -> bytes:
    content = json.dumps({"model": MODEL, **body}).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: site\r\nAuthorization: Bearer {ACME.api_key}\r\n"
        f"X-Request-Id: {name}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


@pytest.mark.parametrize("hard", [False, True], ids=["close", "reset"])
@pytest.mark.parametrize(
    "phase", ["connected", "headers", "body", "sent", "streaming", "streaming-n"]
)
def test_client_may_leave_at_any_time(site: Site, phase: str, hard: bool) -> None:
    name = f"leaver-{phase}-{hard}"
    many = {"n": 3} if phase == "streaming-n" else {}
    request = _request(
        name, prompt=prompt(600), max_tokens=400, stream=True, ignore_eos=True, **many
    )
    sent = {"connected": 0, "headers": 60, "body": len(request) - 30}.get(phase, len(request))
    with _connection(site) as raw:
        raw.sendall(request[:sent])
        if phase.startswith("streaming"):
            assert b"data: " in raw.recv(65536) + raw.recv(65536)
        if hard:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for("nobody's work to end", lambda: site.get("/stats")["loop"]["running"] == 0, seconds=3)
    if phase.startswith("streaming"):
        record = site.record(name)
        assert record["error"] == "the client went away"
        assert record["completion_tokens"] < 400


def _open_at(site: Site, client_port: int) -> bool:
    """Whether the site still has its end of the connection."""
    ends = (f"0100007F:{site.settings.api_port:04X}", f"0100007F:{client_port:04X}")
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any((row[1], row[2]) == ends and row[3] == "01" for row in rows)


def test_clients_that_do_not_keep_up_hold_no_blocks_and_are_cut_off(own_room: SiteRoom) -> None:
    """One that never reads its stream, one that never reads its answer, one that trickles.

    To the kernel the last is alive: the site itself must cut it.
    """
    site = own_room.start(own_room.settings("a", request_deadline_s=5))
    # One token and the prompt before it, 512 times: 8 MB to send, more than sockets' buffers
    # take, and nothing to compute once the prompt is cached.
    text = "\x01" * 2700
    big = {"prompt": [text] * 4, "echo": True, "n": 128, "max_tokens": 1}
    body = {"model": MODEL, "prompt": text, "max_tokens": 1}
    httpx.post(f"{site.url}/v1/completions", json=body, headers=AUTH, trust_env=False)
    with (
        _connection(site, receive_bytes=4096) as mute,
        _connection(site, receive_bytes=4096) as whole,
        _connection(site, receive_bytes=65536) as slow,
    ):
        mute.sendall(_request("mute", stream=True, **big))
        whole.sendall(_request("whole", **big))
        slow.sendall(_request("slow", stream=True, **big))
        ports = {sock.getsockname()[1] for sock in (mute, whole, slow)}

        def is_cut() -> bool:
            try:
                assert slow.recv(1000), "ended as if the answer were whole"
            except ConnectionResetError:
                return True
            return False

        def all_computed() -> bool:
            return bool(site.get("/stats")["loop"]["finished"] == 1 + 3 * 4)

        wait_for("all answers", all_computed, seconds=4.9)
        wait_for("their blocks", lambda: site.engine()["blocks_pinned"] == 0, seconds=1)
        assert all(_open_at(site, port) for port in ports), "it fits the sockets' buffers"
        wait_for("the cut of the slow one", is_cut, seconds=8)
        for port in ports:
            wait_for("the cuts", lambda port=port: not _open_at(site, port), seconds=8)
    assert site.get("/integrity") == {"integrity": "ok"}


def test_body_that_does_not_come_is_given_up(room: SiteRoom) -> None:
    site = room.start(room.settings("a", request_deadline_s=0.5))
    with _connection(site) as raw:
        raw.sendall(_request("half", prompt="x")[:-5])
        assert raw.recv(4096).startswith(b"HTTP/1.1 408")


# -- damaged models --------------------------------------------------------------------


def _damaged(folder: Path, norm: float, head: float = 1.0) -> Path:
    """geokv-tiny as a folder, its last weights multiplied, with a byte-level tokenizer."""
    model = random_model(replace(TINY, vocab_size=320, max_tokens=256), 1)
    model.weights.norm.mul_(norm)
    model.weights.head.mul_(head)
    write(model, folder)
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(["a few words"], trainer)
    backend.save(str(folder / "tokenizer.json"))
    return folder


def test_model_that_computes_no_numbers_is_500_and_the_worker_lives(
    room: SiteRoom, tmp_path: Path
) -> None:
    """Finite weights that overflow: no check of a file can see them."""
    site = room.start(room.settings("a", model=str(_damaged(tmp_path, 1e30, 1e30))))
    with openai.OpenAI(base_url=f"{site.url}/v1", api_key=ACME.api_key, max_retries=0) as client:
        for _ in range(2):
            with pytest.raises(openai.InternalServerError, match="not finite") as caught:
                client.completions.create(model=str(tmp_path), prompt="a few words", n=2)
            assert caught.value.status_code == 500
        assert len(list(client.models.list())) == 1
    assert site.engine()["blocks_pinned"] == 0
    assert site.get("/integrity") == {"integrity": "ok"}


def test_model_folder_with_nan_is_refused_at_the_start(room: SiteRoom, tmp_path: Path) -> None:
    words = room.last_words(room.settings("a", model=str(_damaged(tmp_path, float("nan")))))
    assert "model.norm.weight" in words
