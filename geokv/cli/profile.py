"""``geokv profile``: what GPU times are charged, from what, and how far off they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from geokv.cli.group import Commands

if TYPE_CHECKING:
    from geokv.engine.fit.rows import Row
    from geokv.engine.profile import GpuProfile
    from geokv.engine.profile_cost import FitError

app = typer.Typer(
    cls=Commands, no_args_is_help=True, help="GPU profiles: the times a charged run stands for."
)

TRACES = "GEOKV_TRACES"
_PROMPTS = ((8320, 0), (128, 8192), (2048, 0), (512, 0), (128, 0))
_BATCHES = ((1, 1024), (1, 8192), (8, 1024), (32, 1024), (128, 1024))
_WIDTH_COLUMNS = 140


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
    shown = _table(
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
    _print(shown)
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
    _print(_facts(profile), _times(profile), _constants(profile), _errors(profile))
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
    _print(*(_checked(name, [row for row in rows if row.device == name]) for name in kernels))
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


def _table(*columns: str, title: str | None = None, words: int = 1) -> Table:
    """Its first ``words`` columns hold words, the others figures."""
    shown = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns[:words]:
        shown.add_column(column, no_wrap=True)
    for column in columns[words:]:
        shown.add_column(column, justify="right", no_wrap=True)
    return shown


def _print(*shown: Table) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, _WIDTH_COLUMNS))
    for one in shown:
        console.print(one)


def _facts(profile: GpuProfile) -> Table:
    shown = Table(
        box=None, show_header=False, pad_edge=False, title=profile.name, title_justify="left"
    )
    watts, copies = profile.watts, profile.copy_cost
    for name, value in (
        ("kind", profile.kind),
        ("model", profile.model),
        ("device", profile.device),
        ("KV per token", f"{profile.kv_bytes_per_token:,} bytes"),
        ("weights", f"{profile.weights_bytes / 1e9:.2f} GB"),
        ("heads per GPU", f"{profile.heads}, {profile.layers} layers"),
        ("tokens per pass", f"{profile.batch_tokens:,}"),
        (
            "copies",
            f"{copies.operation_s * 1e6:g} µs per operation + bytes / "
            f"{copies.bytes_per_s * profile.tensor_parallel / 1e9:g} GB/s",
        ),
        (
            "watts",
            f"idle {watts.idle:g}, prefill {watts.prefill:g}, decode {watts.decode:g} "
            f"({watts.range})",
        ),
    ):
        shown.add_row(name, value)
    return shown


def _times(profile: GpuProfile) -> Table:
    shown = _table("prefill", "ms", "decode of one step", "ms", title="Times")
    for (new, cached), (batch, context) in zip(_PROMPTS, _BATCHES, strict=True):
        shown.add_row(
            f"{new:,} new on {cached:,} cached",
            f"{profile.prefill_s(new, cached) * 1e3:.2f}",
            f"{batch} × {context:,} tokens",
            f"{profile.decode_s([context] * batch) * 1e3:.2f}",
        )
    return shown


def _constants(profile: GpuProfile) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, title="Constants", title_justify="left", pad_edge=False)
    shown.add_column("what", no_wrap=True)
    shown.add_column("values")
    for name, curve in (("layers, ms", profile.layers_s), ("head, ms", profile.head_s)):
        pairs = zip(curve.at, curve.seconds, strict=True)
        shown.add_row(name, ", ".join(f"{at:,}: {value * 1e3:.4g}" for at, value in pairs))
    for name, kernel in (
        ("prefill attention", profile.prefill_attention),
        ("decode attention", profile.decode_attention),
    ):
        launch = zip(kernel.fixed_s.at, kernel.fixed_s.seconds, strict=True)
        waves = zip(kernel.wave_s.at, kernel.wave_s.s_per_token, strict=True)
        shown.add_row(
            name,
            f"{kernel.side_by_side} blocks side by side, {kernel.tile_tokens} new tokens each",
        )
        shown.add_row(
            "  a launch, µs by blocks",
            ", ".join(f"{at:,}: {value * 1e6:.4g}" for at, value in launch),
        )
        shown.add_row(
            "  a wave, ns per token", ", ".join(f"{at}: {value * 1e9:.4g}" for at, value in waves)
        )
    return shown


def _errors(profile: GpuProfile) -> Table:
    own = profile.kind == "fitted"
    title = "Error against measurements" if own else "Error of its efficiencies where measured"
    shown = _table("compared", "points", "median", "p95", title=title)
    for name, error in profile.fit_error.items():
        shown.add_row(name, f"{error.points:,}", f"{error.median:.1%}", _p95(error))
    return shown


def _checked(device: str, rows: Sequence[Row]) -> Table:
    words, figures = ("phase", "source", "what"), ("points", "median", "p95", "held out", "p95")
    shown = _table(*words, *figures, "bar", title=device, words=len(words))
    for row in rows:
        error, held = row.error, row.held_out
        mark = ("[green]ok[/green]" if row.within else "[red]missed[/red]") if row.counts else "–"
        shown.add_row(
            row.phase,
            row.source,
            row.what,
            f"{error.points:,}",
            f"{error.median:.1%}",
            _p95(error),
            f"{held.median:.1%}" if held else "",
            _p95(held) if held else "",
            mark,
        )
    return shown


def _p95(error: FitError) -> str:
    """Nothing where so few points carry none: it would be the largest under another name."""
    from geokv.measure.statistics.carried import least_for_number

    return f"{error.p95:.1%}" if error.points >= least_for_number(0.95) else "–"


def _plot(rows: Sequence[Row], band: float, path: Path) -> None:
    from geokv.report.plot_profiles import Cloud, save_clouds

    clouds = [
        Cloud((row.phase, row.device), row.source, list(row.predicted), list(row.measured))
        for phase in ("prefill", "decode")
        for row in rows
        if row.phase == phase
    ]
    save_clouds(clouds, band, path)
