"""``geokv serve``: one worker on this host, for a first try with curl."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console

from geokv.errors import ConfigError
from geokv.units import parse_seconds, parse_size

if TYPE_CHECKING:
    from geokv.site.alone import AloneSettings, Ready

Number = TypeVar("Number", int, float)


class Dtype(StrEnum):
    """Of weights and KV."""

    float32 = "float32"
    bfloat16 = "bfloat16"


class Time(StrEnum):
    """Whose time computing takes."""

    real = "real"
    charged = "charged"


def serve(
    model: Annotated[
        str, typer.Argument(help="geokv-tiny, a fetched model, or a folder with safetensors.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="GEOKV_API_KEY",
            show_envvar=True,
            help="What clients send; random when not given.",
        ),
    ] = None,
    dtype: Annotated[Dtype, typer.Option(help="Of weights and KV.")] = Dtype.float32,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:N or auto.")] = "auto",
    compute: Annotated[
        Time, typer.Option(help="Take the time it takes, or that of another GPU.")
    ] = Time.real,
    stands_for: Annotated[
        str, typer.Option(help="With --compute charged: MODEL@DEVICE, a GPU profile.")
    ] = "llama-3.1-8b@h100-sxm",
    memory: Annotated[str, typer.Option(help="Of the KV pool, taken at once.")] = "512MiB",
    dram: Annotated[str, typer.Option(help="Of the tier below it.")] = "128MiB",
    max_batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens of one step.")] = 512,
    max_running: Annotated[int, typer.Option(min=1, help="Answers side by side.")] = 64,
    max_waiting: Annotated[
        int, typer.Option(min=0, help="Requests that wait; more are refused with 429.")
    ] = 256,
    deadline: Annotated[str, typer.Option(help="Longest time of a request.")] = "10min",
    seed: Annotated[int, typer.Option(min=0, help="Of geokv-tiny's random weights.")] = 0,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of torch; all processors when not given.")
    ] = None,
) -> None:
    """Serve a model on this host with an OpenAI-compatible API, until Ctrl-C.

    Prints a curl command to copy. Nothing is emulated: no VM, no links, no other sites.

    Examples:

      geokv serve geokv-tiny

      geokv serve smollm2-135m --port 9000 --dtype bfloat16

      geokv serve geokv-tiny --compute charged --stands-for llama-3.1-8b@h100-sxm
    """
    from geokv.site.alone import AloneSettings, serve_alone

    settings = AloneSettings(
        model=model,
        host=host,
        port=port,
        api_key=_key(api_key),
        dtype=dtype.value,
        device=device,
        seed=seed,
        stands_for=stands_for if compute is Time.charged else None,
        pool_bytes=_quantity("--memory", memory, parse_size),
        dram_bytes=_quantity("--dram", dram, parse_size),
        max_batch_tokens=max_batch_tokens,
        max_running=max_running,
        max_waiting=max_waiting,
        request_deadline_s=_quantity("--deadline", deadline, parse_seconds),
        threads=threads,
    )
    asyncio.run(serve_alone(settings, lambda ready: _tell(settings, ready)))
    Console(stderr=True).print("ended")


def _key(given: str | None) -> str:
    if given is None:
        return f"sk-{secrets.token_urlsafe(24)}"
    if not given.isascii() or not given.isprintable() or " " in given or not given:
        raise ConfigError("--api-key: must be printable ASCII without blanks")
    return given


def _quantity(option: str, text: str, parse: Callable[[object], Number]) -> Number:
    try:
        value = parse(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None
    if not 0 < value < float("inf"):
        raise ConfigError(f"{option}: must be > 0, got {text!r}")
    return value


def _tell(settings: AloneSettings, ready: Ready) -> None:
    """What a user needs for a first request, on standard output."""
    url = f"http://{_reachable(settings.host)}:{ready.port}"
    pace = f"as {settings.stands_for}" if settings.stands_for else "in real time"
    print(
        f"{ready.name} at {url}, {settings.dtype}, {pace}, "
        f"{ready.limit_tokens:,} tokens a request, {ready.pool_tokens:,} in the pool"
    )
    print(f"API key: {settings.api_key}\n")
    path = "chat/completions" if ready.chats else "completions"
    hello = [{"role": "user", "content": "Hello!"}]
    what = {"messages": hello} if ready.chats else {"prompt": "Hello!"}
    body = json.dumps({"model": ready.name, **what, "max_tokens": 32})
    print(
        f"  curl {url}/v1/{path} \\\n"
        f"    -H 'Authorization: Bearer {settings.api_key}' \\\n"
        f"    -H 'Content-Type: application/json' \\\n"
        f"    -d '{body}'\n\n"
        "Ctrl-C ends it.",
        flush=True,
    )


def _reachable(host: str) -> str:
    return "127.0.0.1" if host == "0.0.0.0" else host
