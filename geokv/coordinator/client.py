"""The load client: a process in a site's access namespace that measures as a user would.

It speaks plain streaming HTTP to the site's front door and takes TTFT where the user is:
from just before the request is sent to the first streamed token received.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import httpx

from geokv.clock import now_ns
from geokv.lab.enter import enter_netns


@dataclass(frozen=True)
class Question:
    """One request to send."""

    request_id: str
    url: str
    api_key: str
    model: str
    tokens: list[int]
    max_tokens: int
    deadline_s: float
    stop: tuple[str, ...] = ()
    ignore_eos: bool = True


@dataclass
class Reply:
    """What the client saw. Stamps are monotonic ns."""

    request_id: str
    sent_ns: int
    first_ns: int | None = None
    done_ns: int = 0
    text: str = ""
    error: str | None = None
    status: int | None = None
    """Of HTTP; None when no answer began."""
    gave_up: bool = False
    """Whether the client ended it, at its deadline, and not the site."""


def run_client(netns: str, orders: Connection) -> None:
    """Process entry: answer ``Question`` with ``Reply`` until None or the end of the pipe."""
    enter_netns(netns)
    asyncio.run(_serve(orders))


async def _serve(orders: Connection) -> None:
    loop = asyncio.get_running_loop()
    limits = httpx.Limits(keepalive_expiry=None)
    async with httpx.AsyncClient(limits=limits, trust_env=False) as http:
        while True:
            try:
                question = await loop.run_in_executor(None, orders.recv)
            except EOFError:
                return
            if question is None:
                return
            orders.send(await ask(http, question))


async def ask(http: httpx.AsyncClient, question: Question) -> Reply:
    """Send one request and read its stream to the end; errors are part of the reply."""
    body: dict[str, Any] = {
        "model": question.model,
        "prompt": question.tokens,
        "max_tokens": question.max_tokens,
        "temperature": 0,
        "stream": True,
        "ignore_eos": question.ignore_eos,
    }
    if question.stop:
        body["stop"] = list(question.stop)
    headers = {
        "Authorization": f"Bearer {question.api_key}",
        "X-Request-Id": question.request_id,
    }
    content = json.dumps(body)
    headers["Content-Type"] = "application/json"
    reply = Reply(question.request_id, now_ns())
    try:
        async with (
            asyncio.timeout(question.deadline_s),
            http.stream(
                "POST", question.url, content=content, headers=headers, timeout=None
            ) as response,
        ):
            reply.status = response.status_code
            if response.status_code != 200:
                reply.error = f"HTTP {response.status_code}: {(await response.aread()).decode()}"
            else:
                await _read_stream(response, reply)
    except TimeoutError:
        reply.gave_up = True
        reply.error = f"no answer within {question.deadline_s:g} s"
    except httpx.HTTPError as error:
        reply.error = f"{type(error).__name__}: {error}"
    reply.done_ns = now_ns()
    return reply


async def _read_stream(response: httpx.Response, reply: Reply) -> None:
    finished = False
    async for line in response.aiter_lines():
        if not line.startswith("data: "):
            continue
        arrived_ns = now_ns()
        if line == "data: [DONE]":
            finished = True
            continue
        event = json.loads(line[6:])
        if "error" in event:
            reply.error = event["error"]["message"]
            return
        if event["choices"]:
            if reply.first_ns is None:
                reply.first_ns = arrived_ns
            reply.text += event["choices"][0]["text"]
    if not finished:
        reply.error = "the stream ended before [DONE]"
