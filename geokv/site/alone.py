"""One worker by itself on this host: ``geokv serve``. No peers, no control socket, no VM."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from geokv.cache.layout import ChunkLayout
from geokv.cache.lifetime import Lru
from geokv.cache.locality import DramTier
from geokv.cache.ownership import LocalDirectory
from geokv.cache.shared import SharedCache
from geokv.cache.substrate.tcp import TcpTransport
from geokv.ending import set_when_told
from geokv.engine.compute import ChargedCompute, Compute, RealCompute
from geokv.engine.engine import Engine
from geokv.engine.load import load_model
from geokv.engine.loop import EngineLoop
from geokv.engine.profile import load_profile
from geokv.engine.scheduler import SchedulerSettings
from geokv.engine.tokenizer import load_tokenizer
from geokv.errors import ConfigError, EngineError
from geokv.site.api import build_api
from geokv.site.front import HttpServer, listen
from geokv.site.settings import Tenant
from geokv.site.worker import Worker
from geokv.units import show_size

_BLOCK_TOKENS = 16
_CHUNK_TOKENS = 256


@dataclass(frozen=True)
class AloneSettings:
    """What ``geokv serve`` was asked for.

    Args:
        stands_for: GPU profile whose time is charged; None computes in real time.
        pool_bytes: of the paged pool, really taken; ``dram_bytes`` of the tier below it.
        threads: of torch; None uses every processor this process may run on.
    """

    model: str
    host: str
    port: int
    api_key: str
    dtype: str
    device: str
    seed: int
    stands_for: str | None
    pool_bytes: int
    dram_bytes: int
    max_batch_tokens: int
    max_running: int
    max_waiting: int
    request_deadline_s: float
    threads: int | None


@dataclass(frozen=True)
class Ready:
    """What a server that listens is.

    Args:
        name: the model as the API calls it.
        chats: whether the model has a chat template.
    """

    name: str
    port: int
    limit_tokens: int
    pool_tokens: int
    chats: bool


async def serve_alone(settings: AloneSettings, on_ready: Callable[[Ready], None]) -> None:
    """Serve until Ctrl-C, SIGTERM or SIGHUP.

    Raises:
        GeokvError: it cannot start: port taken, model missing, pool too small …
    """
    # Before the model is loaded: a taken port must not take seconds to say so.
    listener = listen(settings.host, settings.port, "geokv serve")
    try:
        await _serve(settings, listener, on_ready)
    finally:
        listener.close()


async def _serve(
    settings: AloneSettings, listener: socket.socket, on_ready: Callable[[Ready], None]
) -> None:
    torch.set_num_threads(settings.threads or len(os.sched_getaffinity(0)))
    worker = build_alone(settings)
    name = Path(settings.model).expanduser().name
    tenant = Tenant("local", settings.api_key, b"geokv serve")
    deadline_s = settings.request_deadline_s
    api = build_api("local", name, worker, [tenant], deadline_s, [settings.api_key])
    stop = asyncio.Event()
    set_when_told(stop)
    on_ready(
        Ready(
            name,
            int(listener.getsockname()[1]),
            worker.engine.limit_tokens,
            worker.engine.pool.blocks * _BLOCK_TOKENS,
            _chats(worker),
        )
    )
    try:
        await HttpServer(api, listener, stalled_s=deadline_s).run(stop)
    finally:
        await worker.aclose()


def build_alone(settings: AloneSettings) -> Worker:
    """Model, pool and tier of a worker that shares with nobody.

    Raises:
        GeokvError: the model is not there, or the pool or the tier holds too little.
    """
    dtype = getattr(torch, settings.dtype)
    model = load_model(settings.model, settings.seed, dtype, settings.device)
    shape = model.config
    own_bytes = shape.kv_bytes_per_token(dtype)
    blocks = settings.pool_bytes // (_BLOCK_TOKENS * own_bytes)
    if blocks < 2:
        raise ConfigError(
            f"--memory: {show_size(settings.pool_bytes)} hold {blocks} blocks of "
            f"{show_size(_BLOCK_TOKENS * own_bytes)}",
            "give the pool more",
        )
    compute: Compute = RealCompute()
    stands_for_bytes = own_bytes
    if settings.stands_for is not None:
        profile = load_profile(settings.stands_for)
        compute = ChargedCompute(profile, threaded=True)
        stands_for_bytes = profile.kv_bytes_per_token
    engine = Engine(model, blocks, compute, _BLOCK_TOKENS)
    tokenizer = load_tokenizer(settings.model)
    loop = EngineLoop(
        engine,
        SchedulerSettings(
            max_batch_tokens=settings.max_batch_tokens,
            max_running=settings.max_running,
            max_waiting=settings.max_waiting,
        ),
        tokenizer,
    )
    layout = ChunkLayout(
        model_fingerprint=model.fingerprint,
        dtype=settings.dtype,
        layers=shape.layers,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        block_tokens=_BLOCK_TOKENS,
        chunk_tokens=_CHUNK_TOKENS,
        groups=1,
        wire_bytes_per_token=own_bytes,
    )
    # It never listens and has no peers; the key only has to be nobody else's.
    secret = hashlib.blake2b(settings.api_key.encode(), digest_size=32).digest()
    transport = TcpTransport("local", layout, secret, streams=1, in_flight=1, incarnation=1)
    tier = DramTier(layout, settings.dram_bytes, Lru())
    cache = SharedCache("local", layout, tier, LocalDirectory(), transport)
    return Worker(loop, tokenizer, cache, stands_for_bytes, settings.request_deadline_s)


def _chats(worker: Worker) -> bool:
    try:
        worker.tokenizer.chat([{"role": "user", "content": "Hello"}])
    except EngineError:
        return False
    return True
