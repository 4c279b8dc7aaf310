"""``geokv profile``: what GPU times are charged, from what, and how far off they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geokv.cli import profile_tables as tables
from geokv.cli.group import Commands

if TYPE_CHECKING:
    from geokv.engine.fit.rows import Row

app = typer.Typer(
    cls=Commands, no_args_is_help=True, help="GPU profiles: the times a charged run stands for."
)

TRACES = "GEOKV_TRACES"


@app.command("list")
def list_(
    device: Annotated[str, typer.Argument(help="Only this device, for example l4.")] = "",
) -> None:
    """List all profiles: model@device, and model-tp4@device on four GPUs.

    Examples:

      geokv profile list

      geokv profile list h200-sxm
    """
    from geokv.engine.profile import known_profiles, load_profile
    from geokv.errors import ConfigError

    known = [name for name in known_profiles() if not device or name.endswith(f"@{device}")]
    if not known:
        devices = sorted({name.partition("@")[2] for name in known_profiles()})
        raise ConfigError(f"no device {device!r}", f"known: {', '.join(devices)}")
    shown = tables.table(
        "profile", "kind", "KV KiB/token", "8,320 new ms", "128 on 8,192 ms", "decode ms"
    )
    for name in known:
        one = load_profile(name)
        shown.add_row(
            name,
            one.kind,
            f"{one.kv_bytes_per_token / 1024:g}",
            f"{one.prefill_s(8320) * 1e3:.1f}",
            f"{one.prefill_s(128, 8192) * 1e3:.2f}",
            f"{one.decode_s([1024]) * 1e3:.2f}",
        )
    tables.print_tables(shown)
    typer.echo("decode: one sequence with 1,024 tokens of context")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A name of 'geokv profile list', or a YAML file.")],
) -> None:
    """Print a profile's constants, sources and error, and the times that follow from them.

    Examples:

      geokv profile show llama-3.1-8b@h100-sxm

      geokv profile show llama-3.1-70b-tp8@h100-sxm
    """
    from geokv.engine.profile import load_profile

    profile = load_profile(name)
    tables.print_tables(
        tables.facts(profile),
        tables.times(profile),
        tables.constants(profile),
        tables.errors(profile),
    )
    typer.echo("Sources:")
    for source in (
        *profile.sources,
        f"copies: {profile.copy_cost.source}",
        f"watts: {profile.watts.source}",
    ):
        typer.echo(f"  - {source}")


@app.command()
def check(
    path: Annotated[
        Path | None,
        typer.Argument(help=f"Folder of measured files (gpu_profiles). [default: ${TRACES}]"),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw predicted against measured (SVG, or PNG).")
    ] = None,
) -> None:
    """Compare the profiles with every measured point, source by source.

    Exit code 1 if H100's or A100's prefill or decode misses the bar: median error 10 %,
    95th percentile 25 %. "held out" is the median error on one half of the points of a fit
    to the other half.

    Examples:

      geokv profile check traces/gpu_profiles

      GEOKV_TRACES=traces geokv profile check --plot profiles.svg
    """
    from geokv.engine.fit.compare import compare
    from geokv.engine.fit.measured import Measurements
    from geokv.engine.fit.rows import LEFT_OUT, MEDIAN_BAR, P95_BAR, missed
    from geokv.engine.fit.sources import MEASURED_DEVICES, Sources
    from geokv.engine.profile import load_profile
    from geokv.engine.profile_parts import Kernels, part
    from geokv.errors import ConfigError

    if plot and not plot.absolute().parent.is_dir():
        raise ConfigError(f"{plot}: no such folder", "name a file in a folder that exists")
    files = Measurements(_folder(path))
    kernels = {name: part(Kernels, name) for name in MEASURED_DEVICES}
    rows = compare(files, Sources.read(files), kernels, load_profile)
    tables.print_tables(
        *(tables.checked(name, [row for row in rows if row.device == name]) for name in kernels)
    )
    typer.echo("Left out of the bar, or of the fits, and why:")
    for said in LEFT_OUT:
        typer.echo(f"  - {said}")
    if plot:
        _plot(rows, P95_BAR, plot)
        typer.echo(str(plot))
    points = sum(row.error.points for row in rows)
    judged = sum(row.counts for row in rows)
    bar = f"median ≤ {MEDIAN_BAR:.0%}, 95th percentile ≤ {P95_BAR:.0%}"
    if bad := missed(rows):
        typer.echo(f"fail: {len(bad)} of {judged} judged lines miss the bar ({bar})")
        raise typer.Exit(1)
    typer.echo(f"pass: {points:,} points; all {judged} judged lines within the bar ({bar})")


def _folder(path: Path | None) -> Path:
    """The folder with ``llmservingsim/``, ``vidur/`` and ``splitwise/``.

    Raises:
        ConfigError: none was named, or it is not there.
    """
    from geokv.errors import ConfigError

    named = path or (Path(os.environ[TRACES]) if os.environ.get(TRACES) else None)
    hint = (
        "give the folder gpu_profiles with llmservingsim/, vidur/ and splitwise/ in it "
        "(docs/profiles.md says where each file is published), as argument or in GEOKV_TRACES"
    )
    if named is None:
        raise ConfigError("no folder of measured files", hint)
    inner = named / "gpu_profiles"
    found = inner if inner.is_dir() else named
    if not found.is_dir():
        raise ConfigError(f"{named}: no such folder", hint)
    return found


def _plot(rows: Sequence[Row], band: float, path: Path) -> None:
    from geokv.report.plot_profiles import Cloud, save_clouds

    clouds = [
        Cloud((row.phase, row.device), row.source, list(row.predicted), list(row.measured))
        for phase in ("prefill", "decode")
        for row in rows
        if row.phase == phase
    ]
    save_clouds(clouds, band, path)
