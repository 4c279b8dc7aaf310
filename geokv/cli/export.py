"""``geokv export``: a finished run for other tools."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from geokv.cli.run_folder import require_run
from geokv.errors import ConfigError
from geokv.units import NS_PER_S


def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    otlp: Annotated[
        Path, typer.Option("--otlp", metavar="FILE", help="OpenTelemetry traces, lines of JSON.")
    ],
    begin: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When the first request was sent, for stores that refuse old traces: "
            "2026-11-30T07:00:00Z, or now. Default: the lab's own clock.",
        ),
    ] = None,
) -> None:
    """Write the requests of a finished run as OpenTelemetry traces.

    One trace per request: the client's span, and below it the site's spans, which add up to the
    time to first token and to the last. What sites did for it, and faults, are events. The file
    opens in the page of Jaeger 1.60 or later (Search → Upload) and is what a collector's
    otlpjsonfile receiver takes, with start_at: beginning. Stores find by time: see --begin.

    Examples:

      geokv export results/smoke/20261130-101500-7cd85aa9 --otlp trace.json

      geokv export results/link-cut/… --otlp trace.json --begin now
    """
    from geokv.report.disk import require_place
    from geokv.report.otlp.write import write_otlp

    require_run(run)
    require_place(otlp, "--otlp")
    traces = write_otlp(run, otlp, _moment_ns(begin))
    typer.echo(f"{traces:,} traces in {otlp}")


def _moment_ns(text: str | None) -> int | None:
    if text is None:
        return None
    if text == "now":
        return int(datetime.now(UTC).timestamp()) * NS_PER_S
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--begin: {text!r} is no time", "write it as 2026-11-30T07:00:00Z, or now"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * NS_PER_S
