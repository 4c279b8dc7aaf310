"""``http://127.0.0.1:PORT/metrics`` for as long as a run goes on.

A verdict is the last thing a run has to tell, and Prometheus comes by only every so often. So an
endpoint that somebody has read stays until the verdict was read, too, or a reader of the same
pace would have come by. Ctrl-C ends that wait, and a run that it stopped does not wait.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from socketserver import TCPServer, ThreadingMixIn
from types import TracebackType
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from geokv.errors import ConfigError
from geokv.live.follow import LAST
from geokv.loopback import NAMES, names_us
from geokv.report.prometheus.figures import RunFigures
from geokv.scenario import Scenario

HOST = "127.0.0.1"
LONGEST_S = 60.0
"""Nobody is waited for longer than this."""
_TEXT = ("Content-Type", "text/plain; charset=utf-8")
_USUAL_S = 15.0
"""Between two reads, where only one was seen: what people set most."""


class Endpoint:
    """Serves a run's figures; a context manager.

    Args:
        port: 0 takes a free one.

    Raises:
        ConfigError: the port cannot be had.
    """

    def __init__(self, scenario: Scenario, port: int) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._figures = RunFigures(scenario, self._registry)
        self._lock = threading.Lock()
        self._reads: list[float] = []
        self._over = False
        self._told = threading.Event()
        try:
            self._server = _Server((HOST, port), _Silent)
        except OSError as error:
            raise ConfigError(
                f"--prometheus: port {port} cannot be had ({error.strerror})",
                "choose another one; 0 takes a free one",
            ) from None
        app = make_wsgi_app(self._registry)
        self._server.set_app(_Only(app, self._server.server_port, self._asked, self._told))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where the figures are."""
        return f"http://{HOST}:{self._server.server_port}/metrics"

    def take(self, event: dict[str, Any]) -> None:
        """Count one event of the run."""
        self._figures.take(event)
        if event["event"] in LAST:
            with self._lock:
                self._over = True

    def __enter__(self) -> Endpoint:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
                with contextlib.suppress(KeyboardInterrupt):
                    self._told.wait(self.patience_s())
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def patience_s(self) -> float:
        """How long to wait for a reader of the last word: none who was never there."""
        with self._lock:
            reads = list(self._reads)
        if not reads or not self._over:
            return 0.0
        gaps = [later - earlier for earlier, later in itertools.pairwise(reads)]
        usual_s = statistics.median(gaps) if gaps else _USUAL_S
        return min(LONGEST_S, 1.2 * usual_s + 1)

    def _asked(self) -> bool:
        """Somebody reads; whether the verdict is among what they get."""
        with self._lock:
            self._reads.append(time.monotonic())
            return self._over


class _Server(ThreadingMixIn, WSGIServer):
    """A thread per reader. What is being answered when it closes is answered to the end."""

    daemon_threads = False
    block_on_close = True

    def server_bind(self) -> None:
        # WSGIServer's own would ask a name server what this address is called.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.socket.getsockname()[1]
        self.setup_environ()


class _Silent(WSGIRequestHandler):
    """Standard error is for the run's progress."""

    timeout = 5
    """Seconds that a connection may say nothing; it would hold up the end."""

    def log_message(self, format: str, *args: Any) -> None:
        return None


class _Only:
    """The figures under ``/metrics`` for who names this host, and nothing for anybody else."""

    def __init__(
        self, app: Any, port: int, asked: Callable[[], bool], told: threading.Event
    ) -> None:
        self._app = app
        self._port = port
        self._asked = asked
        self._told = told

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        if not names_us(environ.get("HTTP_HOST", ""), NAMES, self._port):
            start_response("421 Misdirected Request", [_TEXT])
            yield b"this server answers to another host name\n"
            return
        if environ["PATH_INFO"] != "/metrics" or environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start_response("404 Not Found", [_TEXT])
            yield b"the figures are under /metrics\n"
            return
        last = self._asked()
        yield from self._app(environ, start_response)
        # Whoever sends this asks for more when it has sent the rest.
        if last:
            self._told.set()
