"""Starting and ending sites as the processes they are, and talking to their control socket."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import httpx
import pytest

from geokv.coordinator.client import Question, Reply, ask
from geokv.site.process import run_site
from geokv.site.settings import Peer, SiteSettings, Tenant

ACME = Tenant("acme", "sk-acme", b"salt of acme")
OTHER = Tenant("other", "sk-other", b"salt of other")
CHUNK_TOKENS = 32
CHUNK_BYTES = 32 * 1024
"""geokv-tiny has 1 KiB of KV per token; at S = 128 the 8B model's wire bytes are the same."""

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["geokv.coordinator.preload"])


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def prompt(tokens: int, seed: int = 1) -> list[int]:
    """Seeded token ids that are plain bytes."""
    rng = random.Random(seed)
    return [rng.randrange(256) for _ in range(tokens)]


def wait_for(what: str, true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Poll until something holds."""
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, f"waited {seconds:g} s in vain for: {what}"
        time.sleep(0.01)


@dataclass
class Site:
    """A running site."""

    settings: SiteSettings
    process: ForkServerProcess
    control: httpx.Client
    killed: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.api_port}"

    def get(self, path: str) -> Any:
        return self.control.get(path).raise_for_status().json()

    def post(self, path: str, **body: Any) -> Any:
        return self.control.post(path, json=body).raise_for_status().json()

    def record(self, request_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/requests/{request_id}")["record"]
        assert found is not None, request_id
        return found

    def engine(self) -> dict[str, int]:
        found: dict[str, int] = self.get("/stats")["engine"]
        return found

    def kill(self) -> None:
        """As a crash would: no word to anybody."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.killed = True

    async def ask(
        self,
        request_id: str,
        tokens: list[int],
        *,
        max_tokens: int = 4,
        api_key: str = ACME.api_key,
        deadline_s: float = 20.0,
    ) -> Reply:
        """One streamed request, measured by the client of real runs."""
        question = Question(
            request_id,
            f"{self.url}/v1/completions",
            api_key,
            self.settings.model,
            tokens,
            max_tokens,
            deadline_s,
        )
        async with httpx.AsyncClient(trust_env=False) as http:
            return await ask(http, question)


class SiteRoom:
    """A folder with sites in it."""

    def __init__(self) -> None:
        # Short: a UNIX socket's path has at most 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="geokv-t-", dir="/tmp"))
        self.sites: list[Site] = []

    def __enter__(self) -> SiteRoom:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            for site in self.sites:
                self._end(site, check=kind is None)
        finally:
            for site in self.sites:
                if site.process.is_alive():
                    site.process.kill()
                site.process.join()
                site.process.close()
                site.control.close()
            shutil.rmtree(self.folder)

    def _end(self, site: Site, check: bool) -> None:
        if site.killed:
            return
        if check:
            site.post("/settle")
            assert site.get("/integrity") == {"integrity": "ok"}, site.settings.name
            assert site.engine()["blocks_pinned"] == 0
        site.process.terminate()
        site.process.join(timeout=15)
        assert site.process.exitcode == 0, f"{site.settings.name}: {site.process.exitcode}"

    def settings(self, name: str, **changes: Any) -> SiteSettings:
        """A small site on free ports; alone it is its own directory."""
        number = len(list(self.folder.iterdir()))
        basic = SiteSettings(
            name=name,
            host="127.0.0.1",
            api_port=free_port(),
            kv_port=free_port(),
            control_socket=str(self.folder / f"{name}-{number}.sock"),
            history_path=str(self.folder / f"history-{name}-{number}.jsonl"),
            peers={},
            tenants=(ACME, OTHER),
            secret=b"a secret of the deployment, 32 by",
            incarnation=1,
            directory_site="a",
            model="geokv-tiny",
            seed=1,
            stands_for="llama-3.1-8b@h100-sxm",
            compute="real",
            content="model",
            dtype="float32",
            max_batch_tokens=None,
            max_running=256,
            max_waiting=1024,
            order="fcfs",
            threaded=False,
            byte_scale=128,
            block_tokens=16,
            chunk_tokens=CHUNK_TOKENS,
            layer_groups=1,
            device_bytes=512 * 16 * 131_072,
            dram_bytes=128 * 128 * CHUNK_BYTES,
            streams=1,
            in_flight=4,
            fetch_deadline_s=5.0,
            request_deadline_s=20.0,
        )
        return replace(basic, **changes)

    def launch(self, settings: SiteSettings) -> Site:
        """Start a process without waiting for it."""
        process = _CONTEXT.Process(target=run_site, args=(settings,), daemon=True)
        process.start()
        control = httpx.Client(
            transport=httpx.HTTPTransport(uds=settings.control_socket),
            base_url="http://control",
            timeout=30,
            trust_env=False,
        )
        return Site(settings, process, control)

    def start(self, settings: SiteSettings) -> Site:
        """Start a site and wait until it serves."""
        site = self.launch(settings)
        self.sites.append(site)
        path = Path(settings.control_socket)
        error = path.with_name(path.name + ".error")

        def up() -> bool:
            assert site.process.is_alive(), error.read_text() if error.exists() else "it died"
            return path.exists()

        wait_for(f"site {settings.name}", up, seconds=60)
        site.get("/stats")
        return site

    def last_words(self, settings: SiteSettings) -> str:
        """Start a site that cannot start; what it says."""
        site = self.launch(settings)
        site.process.join(timeout=60)
        code = site.process.exitcode
        site.process.close()
        site.control.close()
        assert code == 1, code
        return Path(settings.control_socket + ".error").read_text(encoding="utf-8")

    def pair(self, through: int | None = None, **changes: Any) -> tuple[Site, Site]:
        """Sites a (directory, provider) and b (asker).

        Args:
            through: b reaches a at this port (a proxy's) instead of a's own.
        """
        a, b = self.settings("a", **changes), self.settings("b", **changes)
        there = through or a.kv_port
        b = replace(b, peers={"a": Peer("127.0.0.1", there)})
        a = replace(a, peers={"b": Peer("127.0.0.1", b.kv_port)})
        return self.start(a), self.start(b)


@pytest.fixture(scope="module")
def room() -> Iterator[SiteRoom]:
    """Starts sites; at the end every one that was not killed must balance and end cleanly."""
    with SiteRoom() as made:
        yield made


@pytest.fixture
def own_room() -> Iterator[SiteRoom]:
    """The same for one test alone, for tests that kill or starve a site."""
    with SiteRoom() as made:
        yield made
