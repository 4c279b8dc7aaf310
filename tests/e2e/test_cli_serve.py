"""``geokv serve`` as a user starts, asks and ends it."""

from __future__ import annotations

import os
import re
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest
from cli import Geokv

_START_S = 90.0


@dataclass
class Served:
    """A running ``geokv serve`` and what it printed."""

    process: subprocess.Popen[str]
    said: str

    @property
    def url(self) -> str:
        found = re.search(r"http://[\d.]+:\d+", self.said)
        assert found, self.said
        return found[0]

    @property
    def key(self) -> str:
        return self.said.partition("API key: ")[2].splitlines()[0]

    @property
    def curl(self) -> list[str]:
        lines = self.said.partition("  curl ")[2].partition("\n\n")[0]
        return ["curl", *shlex.split(lines.replace("\\\n", " "))]

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Its exit code and what it wrote on standard error."""
        with self.process:
            self.process.send_signal(number)
            _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors


def start(geokv: Geokv, *args: str) -> Served:
    """Start it and wait until it says that Ctrl-C ends it."""
    process = geokv.start("serve", *args, "--port", "0", "--threads", "1")
    assert process.stdout is not None and process.stderr is not None
    said, ends = "", time.monotonic() + _START_S
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while "Ctrl-C" not in said:
            assert selector.select(ends - time.monotonic()), f"said only {said!r}"
            line = os.read(process.stdout.fileno(), 65536).decode()
            assert line, f"ended: {process.stderr.read()}"
            said += line
    return Served(process, said)


@pytest.fixture(scope="module")
def served(geokv: Geokv) -> Iterator[Served]:
    before = geokv.left()
    one = start(geokv, "geokv-tiny", "--memory", "64MiB", "--dram", "8MiB")
    yield one
    assert one.end(signal.SIGINT) == (0, "ended\n")
    assert geokv.left() == before


def test_curl_line_works_as_printed(served: Served) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    done = subprocess.run([*served.curl, "-s"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert '"object":"chat.completion"' in done.stdout
    assert served.key.startswith("sk-") and len(served.key) > 30


def test_stock_client_chats_streams_and_takes_two_answers(served: Served) -> None:
    asked: dict[str, Any] = {
        "model": "geokv-tiny",
        "messages": [{"role": "user", "content": "How far?"}],
        "max_tokens": 6,
        "n": 2,
        "seed": 3,
    }
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key=served.key, max_retries=0) as client:
        whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
        assert [choice.index for choice in whole.choices] == [0, 1]
        assert whole.choices[0].message.content != whole.choices[1].message.content
        for choice in whole.choices:
            assert choice.logprobs is not None and choice.logprobs.content is not None
            assert len(choice.logprobs.content) <= 6
            assert all(len(one.top_logprobs) == 2 for one in choice.logprobs.content)
        stream = client.chat.completions.create(**asked, stream=True)
        texts = ["", ""]
        for chunk in stream:
            for part in chunk.choices:
                texts[part.index] += part.delta.content or ""
        assert texts == [choice.message.content for choice in whole.choices]


def test_metrics_are_open_to_this_machine_and_answers_are_not(served: Served) -> None:
    with httpx.Client(base_url=served.url, trust_env=False, timeout=20) as http:
        assert 'vllm:num_requests_running{engine="0",model_name="geokv-tiny"} 0.0' in (
            http.get("/metrics").text
        )
        assert http.get("/v1/models").status_code == 401


def test_taken_port_is_said_at_once(geokv: Geokv, served: Served) -> None:
    port = served.url.rpartition(":")[2]
    done = geokv("serve", "geokv-tiny", "--port", port)
    assert done.returncode == 4
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "choose another" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("no-such-model",), 4, "no-such-model"),
        (("geokv-tiny", "--memory", "a lot"), 2, "--memory: must be a size"),
        (("geokv-tiny", "--memory", "16KiB"), 2, "hold 1 blocks"),
        (("geokv-tiny", "--deadline", "0s"), 2, "--deadline: must be > 0"),
        (("geokv-tiny", "--api-key", ""), 2, "--api-key"),
        (("geokv-tiny", "--compute", "charged", "--stands-for", "gpt@abacus"), 4, "gpt@abacus"),
        (("geokv-tiny", "--host", "192.0.2.1"), 4, "cannot listen on 192.0.2.1"),
        (("geokv-tiny", "--device", "abacus"), 4, "abacus"),
    ],
)
def test_what_cannot_be_served_says_why(
    geokv: Geokv, args: tuple[str, ...], code: int, words: str
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = geokv("serve", *args, "--port", str(port))
    assert words in done.stderr
    assert done.returncode == code


def test_sigterm_in_the_middle_of_an_answer_ends_it_too(geokv: Geokv) -> None:
    one = start(geokv, "geokv-tiny", "--compute", "charged", "--memory", "64MiB", "--api-key", "k")
    body = {"model": "geokv-tiny", "prompt": "x", "max_tokens": 4000, "ignore_eos": True}
    headers = {"Authorization": "Bearer k"}
    with (
        httpx.Client(trust_env=False, timeout=30) as http,
        http.stream(
            "POST", f"{one.url}/v1/completions", json={**body, "stream": True}, headers=headers
        ) as answer,
    ):
        assert answer.status_code == 200
        next(answer.iter_lines())
        code, _ = one.end(signal.SIGTERM)
    assert code == 0
