"""The processes of a run: one per site and one client per asking site.

A forkserver imports torch and the web stack once (seconds of page faults in the VM);
every process is a fork of it that enters its namespace and starts in milliseconds.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx

from geokv.clock import now_ns, on_the_beat
from geokv.coordinator.client import Question, Reply, run_client
from geokv.errors import RunError
from geokv.lab.enter import enter_netns
from geokv.site.settings import SiteSettings
from geokv.units import NS_PER_S

_PR_SET_PDEATHSIG = 1
_START_DEADLINE_S = 60.0
_LOOK_EVERY_S = 0.01


class SiteHandle:
    """A running site: its process and its control socket.

    Raises:
        RunError: from every call, when the site has died or answers with an error.
    """

    def __init__(self, settings: SiteSettings, process: ForkServerProcess) -> None:
        self.settings = settings
        self.process = process
        transport = httpx.HTTPTransport(uds=settings.control_socket)
        self._http = httpx.Client(
            transport=transport, base_url="http://control", timeout=600, trust_env=False
        )

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """One control command."""
        return self._call("POST", path, body)

    def get(self, path: str) -> dict[str, Any]:
        """One thing collected."""
        return self._call("GET", path, None)

    def last_words(self) -> str:
        """Why it could not start, or with what status it ended."""
        path = Path(self.settings.control_socket + ".error")
        return path.read_text() if path.exists() else f"exit status {self.process.exitcode}"

    def forget(self) -> None:
        """Empty all its tiers."""
        self.post("/drop", tiers=["device", "dram", "disk"])

    def hang_up(self) -> None:
        """Close the connection to its control socket."""
        self._http.close()

    def close(self) -> None:
        """Ask the process to end, then make it."""
        self.hang_up()
        self.process.terminate()
        _join(self.process)

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        try:
            response = self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            state = "runs" if self.process.is_alive() else f"ended ({self.process.exitcode})"
            raise RunError(
                f"site {self.settings.name} does not answer {path}: {error}; its process {state}"
            ) from None
        data: dict[str, Any] = response.json()
        if response.status_code != 200:
            raise RunError(
                f"site {self.settings.name}: {path}: {data['error']}", data.get("hint", "")
            )
        return data


class ClientHandle:
    """A running load client."""

    def __init__(self, process: ForkServerProcess, orders: Connection) -> None:
        self.process = process
        self._orders = orders

    def ask(self, question: Question) -> Reply:
        """Send one question and wait for the reply, at most a little past its deadline.

        Raises:
            RunError: the client process did not reply.
        """
        try:
            self._orders.send(question)
            if self._orders.poll(question.deadline_s + 5):
                reply = self._orders.recv()
                assert isinstance(reply, Reply)
                return reply
        except (EOFError, OSError) as error:
            raise RunError(f"the load client ended: {error}") from None
        raise RunError(f"the load client gave no reply to {question.request_id}")

    def end(self) -> None:
        """Tell the process that nothing more will come."""
        self._orders.close()

    def close(self) -> None:
        """End the process."""
        self.end()
        _join(self.process)


class Fleet:
    """Starts processes into namespaces; a context manager that ends them all, and that is entered
    outside of any event loop."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["geokv.coordinator.preload"])
        self.sites: dict[str, SiteHandle] = {}
        self.clients: dict[str, ClientHandle] = {}
        self._helpers: list[tuple[ForkServerProcess, Connection]] = []

    def __enter__(self) -> Fleet:
        """Sites beat their hearts from when they start on. So all is imported before, and the first
        of them starts on a beat: no line of code more moves what they do against what is asked.

        Raises:
            RunError: the forkserver could not import what they need.
        """
        process = self._context.Process(target=_nothing, name="first", daemon=True)
        _start(process)
        process.join(timeout=_START_DEADLINE_S)
        if process.exitcode != 0:
            process.kill()
            raise RunError(
                "the processes of a run cannot be started: the first of them "
                + (f"ended with {process.exitcode}" if process.exitcode else "did not come to life")
            )
        asyncio.run(on_the_beat())
        return self

    def __exit__(self, *raised: object) -> None:
        # All at once, then one by one: each takes its time to see it.
        for client in self.clients.values():
            client.end()
        for _, pipe in self._helpers:
            pipe.close()
        for site in self.sites.values():
            site.process.terminate()
        for client in self.clients.values():
            client.close()
        for helper, _ in self._helpers:
            _join(helper)
        for site in self.sites.values():
            site.close()

    def start_site(self, settings: SiteSettings, netns: str) -> None:
        """Fork one site into ``netns``; ``wait_ready`` says when it serves.

        It takes the place of an earlier life of that name, which must have ended.
        """
        earlier = self.sites.get(settings.name)
        if earlier is not None:
            earlier.hang_up()
        process = self._context.Process(
            target=_site_main, args=(settings, netns), name=f"site-{settings.name}", daemon=True
        )
        _start(process)
        self.sites[settings.name] = SiteHandle(settings, process)

    def start_client(self, site: str, netns: str) -> None:
        """Fork one load client into a site's access namespace."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_client_main, args=(netns, theirs), name=f"client-{site}", daemon=True
        )
        _start(process)
        theirs.close()
        self.clients[site] = ClientHandle(process, ours)

    def start_helper(
        self, name: str, target: Callable[..., None], *args: Any
    ) -> tuple[ForkServerProcess, Connection]:
        """Fork a process that runs ``target(*args, pipe)``, and the other end of its pipe.

        It is to end when its pipe closes; at the latest it is ended with the fleet.

        Args:
            target: a function of a module; what it needs, the forkserver has imported.
        """
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_helper_main, args=(target, args, theirs), name=name, daemon=True
        )
        _start(process)
        theirs.close()
        self._helpers.append((process, ours))
        return process, ours

    def wait_ready(self) -> None:
        """Wait until every site answers its control socket, so that nothing starts up any more
        while links are measured.

        Raises:
            RunError: a site ended or did not come up; carries its own error.
        """
        deadline_ns = now_ns() + round(_START_DEADLINE_S * NS_PER_S)
        for name, site in self.sites.items():
            path = Path(site.settings.control_socket)
            while not path.exists():
                site.process.join(timeout=_LOOK_EVERY_S)
                if not site.process.is_alive():
                    raise RunError(f"site {name} could not start: {site.last_words()}")
                if now_ns() > deadline_ns:
                    raise RunError(f"site {name} was not ready after {_START_DEADLINE_S:g} s")
        for site in self.sites.values():
            site.get("/stats")


def _start(process: ForkServerProcess) -> None:
    """Start it without the module this program was started as.

    multiprocessing would import that again in every process, with all it needs: seconds in
    the VM. What they run is in this module.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.modules["__main__"] = main


def _nothing() -> None:
    """That it has run says that the forkserver has imported everything."""


def _site_main(settings: SiteSettings, netns: str) -> None:
    _die_with_parent()
    enter_netns(netns)
    from geokv.site.process import run_site

    run_site(settings)


def _client_main(netns: str, orders: Connection) -> None:
    _die_with_parent()
    run_client(netns, orders)


def _helper_main(target: Callable[..., None], args: tuple[Any, ...], pipe: Connection) -> None:
    _die_with_parent()
    target(*args, pipe)


def _join(process: ForkServerProcess) -> None:
    """Wait for it to end, then make it."""
    process.join(timeout=10)
    if process.is_alive():
        process.kill()
        process.join()


def _die_with_parent() -> None:
    """The forkserver ends when the coordinator does, and takes its forks with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
