"""A run that goes on, for Prometheus; ``grafana.json`` shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

from geokv.report.prometheus.endpoint import Endpoint
from geokv.scenario import Scenario

__all__ = ["Endpoint", "figures_at"]


@contextmanager
def figures_at(
    scenario: Scenario, port: int | None, console: Console
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Serve a run's figures, if there is a port to do it at; gives who takes its events.

    Args:
        console: told where they are, and what is waited for at the end.

    Raises:
        ConfigError: the port cannot be had.
    """
    if port is None:
        yield lambda event: None
        return
    with Endpoint(scenario, port) as endpoint:
        console.print(Text(f"figures for Prometheus: {endpoint.url}"), soft_wrap=True)
        try:
            yield endpoint.take
        except Exception as error:
            # Nobody else tells it: what is told is told from within the run.
            endpoint.take({"event": "failed", "message": str(error)})
            _say_what_for(endpoint, console)
            raise
        _say_what_for(endpoint, console)


def _say_what_for(endpoint: Endpoint, console: Console) -> None:
    patience_s = endpoint.patience_s()
    if patience_s:
        said = f"waiting for Prometheus to read the verdict, at most {patience_s:.0f} s"
        console.print(Text(said), soft_wrap=True)
