"""What ``geokv profile`` prints of a profile, and of its errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from geokv.engine.fit.rows import Row
    from geokv.engine.profile import GpuProfile
    from geokv.engine.profile_cost import FitError

_PROMPTS = ((8320, 0), (128, 8192), (2048, 0), (512, 0), (128, 0))
_BATCHES = ((1, 1024), (1, 8192), (8, 1024), (32, 1024), (128, 1024))
_WIDTH_COLUMNS = 140


def table(*columns: str, title: str | None = None, words: int = 1) -> Table:
    """Its first ``words`` columns hold words, the others figures."""
    shown = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns[:words]:
        shown.add_column(column, no_wrap=True)
    for column in columns[words:]:
        shown.add_column(column, justify="right", no_wrap=True)
    return shown


def print_tables(*shown: Table) -> None:
    """Wide enough for all of their columns where nobody's terminal says how wide it is."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, _WIDTH_COLUMNS))
    for one in shown:
        console.print(one)


def facts(profile: GpuProfile) -> Table:
    """What it is of, and its few single numbers."""
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


def times(profile: GpuProfile) -> Table:
    """Of a few prefills and steps that a reader can compare with what he knows."""
    shown = table("prefill", "ms", "decode of one step", "ms", title="Times")
    for (new, cached), (batch, context) in zip(_PROMPTS, _BATCHES, strict=True):
        shown.add_row(
            f"{new:,} new on {cached:,} cached",
            f"{profile.prefill_s(new, cached) * 1e3:.2f}",
            f"{batch} × {context:,} tokens",
            f"{profile.decode_s([context] * batch) * 1e3:.2f}",
        )
    return shown


def constants(profile: GpuProfile) -> Table:
    """What a time is put together from: layers, head, attention."""
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


def errors(profile: GpuProfile) -> Table:
    """How far it was off where it was compared."""
    own = profile.kind == "fitted"
    title = "Error against measurements" if own else "Error of its efficiencies where measured"
    shown = table("compared", "points", "median", "p95", title=title)
    for name, error in profile.fit_error.items():
        shown.add_row(name, f"{error.points:,}", f"{error.median:.1%}", _p95(error))
    return shown


def checked(device: str, rows: Sequence[Row]) -> Table:
    """One device's lines of ``geokv profile check``, each within its bar or not."""
    words, figures = ("phase", "source", "what"), ("points", "median", "p95", "held out", "p95")
    shown = table(*words, *figures, "bar", title=device, words=len(words))
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
