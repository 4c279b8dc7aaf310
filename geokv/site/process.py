"""A site's process: build the worker, open its three doors, serve until told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import torch

from geokv import foreign
from geokv.cache.codec import CODECS
from geokv.cache.codec_cost import CodecCost, codec_costs
from geokv.cache.history import History
from geokv.cache.layout import ChunkLayout
from geokv.cache.locality import DiskCost, DiskTier, DramTier
from geokv.cache.ownership import (
    CentralDirectory,
    Directory,
    LocalDirectory,
    SequencedDirectory,
)
from geokv.cache.shared import SharedCache
from geokv.cache.substrate.choose import make_transport
from geokv.clock import now_ns
from geokv.engine.compute import ChargedCompute, Compute, RealCompute
from geokv.engine.engine import Engine
from geokv.engine.load import load_model, model_config
from geokv.engine.loop import EngineLoop
from geokv.engine.profile import load_profile, parts_of
from geokv.engine.protocol import Model
from geokv.engine.scheduler import SchedulerSettings
from geokv.engine.synthetic import SyntheticModel
from geokv.engine.tokenizer import load_tokenizer
from geokv.errors import ConfigError, GeokvError
from geokv.site.api import build_api
from geokv.site.control import build_control
from geokv.site.front import HttpServer, listen
from geokv.site.history import HistoryFile
from geokv.site.settings import SiteSettings
from geokv.site.tenants import Roster
from geokv.site.worker import Worker


async def serve_site(settings: SiteSettings) -> None:
    """Run one site until SIGTERM.

    Raises:
        GeokvError: the site cannot start: port taken, model missing, pools too large …
    """
    torch.set_num_threads(1)
    foreign.use_folders(settings.code)
    history = HistoryFile(Path(settings.history_path), settings.audit)
    life = History(settings.name, history if settings.audit else None, now_ns)
    worker = build_worker(settings, history)
    if settings.sabotage is not None:
        from geokv.site import sabotage

        sabotage.plant(settings.sabotage, worker)
    roster = Roster(settings.tenants)
    worker.cache.knows_tenant = roster.knows
    deadline_s = settings.request_deadline_s
    api = build_api(
        settings.name,
        settings.model,
        worker,
        roster,
        deadline_s,
        settings.operator_keys,
    )
    front = listen(settings.host, settings.api_port, f"site {settings.name}'s API")
    peers = {name: (peer.host, peer.port) for name, peer in settings.peers.items()}
    await worker.cache.start(settings.host, settings.kv_port, peers)
    doors = build_control(worker, history, roster)
    if settings.audit:
        from geokv.site.drill_doors import add_drill_doors

        add_drill_doors(doors, worker, roster)
    control = _listen_unix(settings.control_socket)
    servers = [
        HttpServer(api, front, stalled_s=deadline_s),
        HttpServer(doors, control),
    ]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    tasks = [asyncio.create_task(server.run(stop)) for server in servers]
    life.note("life", incarnation=settings.incarnation, phase="serving")
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        life.note("life", incarnation=settings.incarnation, phase="closing")
        stop.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        await worker.aclose()
        history.close()


def build_worker(settings: SiteSettings, history: HistoryFile) -> Worker:
    """Model, pools, tier, directory and transport of one site, not yet on the network."""
    profile = load_profile(settings.stands_for)
    model = build_model(settings)
    config = model.config
    layout = ChunkLayout.scaled(
        target_bytes_per_token=profile.kv_bytes_per_token,
        byte_scale=settings.byte_scale,
        model_fingerprint=model.fingerprint,
        dtype=str(model.dtype).removeprefix("torch."),
        layers=config.layers,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        block_tokens=settings.block_tokens,
        chunk_tokens=settings.chunk_tokens,
        groups=settings.layer_groups,
        key_tokens=settings.key_tokens,
        shards=settings.shards,
    )
    compute: Compute = RealCompute()
    if settings.compute == "charged":
        compute = ChargedCompute(profile, threaded=settings.threaded)
    blocks = settings.device_bytes // (settings.block_tokens * profile.kv_bytes_per_token)
    engine = Engine(model, blocks, compute, settings.block_tokens)
    tokenizer = load_tokenizer(settings.model)
    loop = EngineLoop(
        engine,
        SchedulerSettings(
            max_batch_tokens=settings.max_batch_tokens or profile.batch_tokens,
            max_running=settings.max_running,
            max_waiting=settings.max_waiting,
            order=settings.order,
        ),
        tokenizer,
    )
    cache = _cache(settings, layout, history)
    return Worker(
        loop,
        tokenizer,
        cache,
        profile.kv_bytes_per_token,
        settings.fetch_deadline_s,
        overlap=settings.overlap,
        audit=settings.audit,
    )


def _cache(settings: SiteSettings, layout: ChunkLayout, history: HistoryFile) -> SharedCache:
    """Tiers, directory and transport."""
    disk = _disk(settings, layout)
    spare = settings.disk.queue_chunks if settings.disk is not None else 0
    dram_bytes = settings.dram_bytes // settings.byte_scale
    tier = DramTier(layout, dram_bytes, settings.dram_policy, spare=spare)
    if settings.quota is not None:
        tier.limit_owners(settings.quota)
    directory: Directory = LocalDirectory()
    if settings.directory_site is not None and settings.anti_entropy_s is not None:
        directory = SequencedDirectory(settings.directory_site, settings.anti_entropy_s)
    elif settings.directory_site is not None:
        directory = CentralDirectory(settings.directory_site)
    transport = make_transport(
        settings.substrate,
        settings.name,
        layout,
        settings.secret,
        # Computing in a thread is what tells a wall clock from a virtual one.
        virtual=not settings.threaded,
        settings={
            "streams": settings.streams,
            "in_flight": settings.in_flight,
            "incarnation": settings.incarnation,
            "security": settings.security,
            "mixed": settings.mixed,
            "codec": settings.codec,
            "codec_costs": codec_costs_of(settings),
            "tenant_caps": settings.tenant_caps,
            "link_caps": settings.link_caps,
        },
    )
    return SharedCache(
        settings.name,
        layout,
        tier,
        directory,
        transport,
        history,
        exact=settings.exact,
        disk=disk,
        write=settings.write,
        publish=settings.publish,
        replication=settings.replication,
        audit=settings.audit,
        membership=settings.membership,
        lease_s=settings.lease_s,
        purge=settings.purge,
    )


def codec_costs_of(settings: SiteSettings) -> dict[str, CodecCost] | None:
    """What coding costs at the deployment this stands for, for bytes divided by S."""
    if settings.codec == "none" or settings.compute == "real":
        return None
    given, parts = settings.codec_cost, parts_of(settings.stands_for)
    if given is not None:
        costs = dict.fromkeys(CODECS, given)
    elif parts is not None:
        _, ways, device = parts
        costs = codec_costs(ways * device.bytes_per_s)
    else:
        raise ConfigError(
            f"{settings.stands_for} does not say how fast its memory is",
            "give cache.substrate.codec_cost",
        )
    return {name: cost.scaled(settings.byte_scale) for name, cost in costs.items()}


def _disk(settings: SiteSettings, layout: ChunkLayout) -> DiskTier | None:
    disk = settings.disk
    if disk is None:
        return None
    cost = None
    if settings.compute == "charged":
        cost = DiskCost(
            disk.read_bytes_per_s,
            disk.write_bytes_per_s,
            disk.read_latency_s,
            disk.write_latency_s,
        ).scaled(settings.byte_scale)
    tier = DiskTier(
        layout,
        disk.size_bytes // settings.byte_scale,
        Path(disk.folder),
        disk.policy,
        cost=cost,
        threaded=settings.threaded,
        sync=disk.sync,
        retry_s=disk.retry_s,
    )
    if settings.quota is not None:
        tier.limit_owners(settings.quota)
    return tier


def build_model(settings: SiteSettings) -> Model:
    """The model, or the synthetic content, that a site serves."""
    if settings.content == "synthetic":
        like = model_config(settings.model)
        return SyntheticModel(like, settings.seed, settings.layer_groups, settings.max_tokens)
    return load_model(settings.model, settings.seed, getattr(torch, settings.dtype))


def _listen_unix(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # It gets its name when it listens: who waits for the name must not be refused.
    unnamed = f"{path}.new"
    listener.bind(unnamed)
    os.chmod(unnamed, 0o600)
    listener.listen(64)
    os.rename(unnamed, path)
    listener.setblocking(False)
    return listener


def run_site(settings: SiteSettings) -> None:
    """Process entry: serve, or leave the reason beside the control socket and end with 1."""
    try:
        asyncio.run(serve_site(settings))
    except GeokvError as error:
        Path(settings.control_socket + ".error").write_text(str(error), encoding="utf-8")
        raise SystemExit(1) from None
