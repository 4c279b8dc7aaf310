"""The load client: what it measures, and that every failure is a reply and not a hang."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import httpx
import pytest
from site_processes import ACME, Site, SiteRoom, free_port, prompt

from geokv.coordinator.client import Question, Reply, ask

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(text: str) -> bytes:
    data = text.encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(text: str) -> bytes:
    return chunk(f'data: {{"choices": [{{"index": 0, "text": "{text}"}}]}}\n\n')


def question(url: str, **changes: object) -> Question:
    asked = Question("q", f"{url}/v1/completions", ACME.api_key, "geokv-tiny", prompt(40), 4, 10.0)
    return replace(asked, **changes)  # type: ignore[arg-type]


async def send(asked: Question) -> Reply:
    async with httpx.AsyncClient(trust_env=False) as http:
        return await ask(http, asked)


@contextlib.asynccontextmanager
async def server(handle: Handler) -> AsyncIterator[str]:
    """A server that behaves as no site should."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            await handle(reader, writer)
        finally:
            writer.close()

    made = await asyncio.start_server(served, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}"
    finally:
        made.close()
        await made.wait_closed()


@pytest.fixture(scope="module")
def site(room: SiteRoom) -> Site:
    return room.start(room.settings("a"))


async def test_reply_has_text_and_stamps_in_order(site: Site) -> None:
    before = time.monotonic_ns()
    reply = await send(question(site.url))
    after = time.monotonic_ns()
    assert reply.error is None
    assert reply.first_ns is not None
    assert before < reply.sent_ns < reply.first_ns < reply.done_ns < after
    record = site.record("q")
    assert len(record["output_ids"]) == 4
    # The client cannot have the first token before the site had it.
    assert reply.sent_ns < record["started_ns"] < record["prefilled_ns"] < reply.first_ns


async def test_ttft_is_the_first_token_and_not_the_last() -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + event("a"))
        await writer.drain()
        await asyncio.sleep(0.3)
        writer.write(event("b") + chunk("data: [DONE]\n\n") + b"0\r\n\r\n")

    async with server(drip) as url:
        reply = await send(question(url))
    assert reply.error is None
    assert reply.text == "ab"
    assert reply.first_ns is not None
    assert reply.done_ns - reply.first_ns > 0.25e9
    assert reply.first_ns - reply.sent_ns < 0.25e9


async def test_refusal_is_an_error_with_the_sites_words(site: Site) -> None:
    reply = await send(question(site.url, api_key="wrong"))
    assert reply.first_ns is None
    assert reply.error is not None
    assert reply.error.startswith("HTTP 401")
    assert "unknown API key" in reply.error


async def test_nobody_there_is_an_error() -> None:
    reply = await send(question(f"http://127.0.0.1:{free_port()}"))
    assert reply.error is not None
    assert "ConnectError" in reply.error


async def test_silence_ends_at_the_deadline() -> None:
    async def mute(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + event("a"))
        await writer.drain()
        await asyncio.sleep(2)

    async with server(mute) as url:
        started = time.monotonic()
        reply = await send(question(url, deadline_s=0.3))
        assert time.monotonic() - started < 1.5
    assert reply.error == "no answer within 0.3 s"


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        (b"0\r\n\r\n", "before [DONE]"),
        (b"", "RemoteProtocolError"),
        (
            chunk('data: {"error": {"message": "out of blocks"}}\n\n') + b"0\r\n\r\n",
            "out of blocks",
        ),
    ],
)
async def test_stream_that_breaks_off_is_an_error(rest: bytes, words: str) -> None:
    async def broken(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + event("a") + rest)
        await writer.drain()

    async with server(broken) as url:
        reply = await send(question(url))
    assert reply.text == "a"
    assert reply.error is not None
    assert words in reply.error
