"""One worker of synthetic content without a network, in this process or its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from geokv.clock import now_ns
from geokv.coordinator.deploy import site_settings
from geokv.scenario import load_scenario
from geokv.site.history import HistoryFile
from geokv.site.process import build_worker
from geokv.site.settings import SiteSettings
from geokv.site.worker import Worker


class _Loopback:
    """Stands where a lab stands: every site is this machine, at an address of its own."""

    def address(self, site: str) -> str:
        return f"127.0.0.{1 + ord(site[0]) - ord('a')}"


def settings_of(name: str = "a", **deployment: object) -> SiteSettings:
    """Settings of a site on its own, with what differs from the smoke scenario."""
    changes = [f"deployment.{key}={value}" for key, value in deployment.items()]
    scenario = load_scenario("smoke", ["deployment.content=synthetic", *changes])
    folder = Path(tempfile.mkdtemp(prefix="alone-", dir="/run"))
    found = site_settings(scenario, scenario, _Loopback(), folder / "control", folder, "0", 1)
    return next(settings for settings in found if settings.name == name)


@contextmanager
def lone_worker(**deployment: object) -> Iterator[Worker]:
    """A worker that reuses nothing: every prompt is computed whole."""
    settings = settings_of(**deployment)
    history = HistoryFile(Path(settings.history_path))
    worker = build_worker(settings, history)
    worker.reuse = "none"
    yield worker
    worker.check_integrity()
    history.close()


def say_when(pipe: Connection) -> None:
    """What a process that a fleet has started reads of the clock first."""
    pipe.send(now_ns())
