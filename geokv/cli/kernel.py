"""``geokv kernel``: build it, find it, look inside."""

from __future__ import annotations

import shutil
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from geokv.cli.group import Commands

app = typer.Typer(cls=Commands, no_args_is_help=True, help="The guest kernel of the embedded VM.")


@app.command()
def build() -> None:
    """Build the guest kernel from Debian's source and keep it in the user's cache.

    Takes a few minutes once (about six CPU-minutes); done at once when it exists.

    Examples:

      geokv kernel build
    """
    from geokv.vm.kernel import STEPS, build_kernel

    started = time.monotonic()
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("kernel", total=STEPS)

        def on_step(phase: str, made: int) -> None:
            progress.update(task, description=f"kernel: {phase}", completed=min(made, STEPS))

        kernel = build_kernel(on_step)
    console.print(f"kernel {kernel.release}: {time.monotonic() - started:.0f} s", highlight=False)
    typer.echo(str(kernel.path))


@app.command()
def path() -> None:
    """Print where the built kernel lies; exit 4 if it is not built.

    Examples:

      "$(geokv kernel path)" --version
    """
    from geokv.vm.kernel import require_kernel

    typer.echo(str(require_kernel().path))


@app.command()
def shell(
    clock: Annotated[str, typer.Option(help="virtual or wall.")] = "wall",
    memory: Annotated[str, typer.Option(help="Memory of the VM.")] = "1GiB",
) -> None:
    """An interactive shell inside the VM, on the host's own files.

    The clock is real by default, as a person types in real time; with the virtual one
    a sleep takes no time at all. Leave with exit.

    Examples:

      geokv kernel shell

      geokv kernel shell --clock virtual
    """
    from geokv.errors import ConfigError
    from geokv.units import parse_size
    from geokv.vm import Job, choose_place
    from geokv.vm.place import in_vm
    from geokv.vm.supervise import run_job

    if clock not in ("virtual", "wall"):
        raise ConfigError(f"--clock: must be virtual or wall, got {clock!r}")
    try:
        memory_bytes = parse_size(memory)
    except ValueError as error:
        raise ConfigError(f"--memory: {error}") from None
    place = choose_place("virtual") if clock == "virtual" else in_vm("wall")
    shell_path = shutil.which("bash") or "/bin/sh"
    outcome = run_job(place, Job((shell_path, "-i"), memory_bytes, interactive=True))
    raise typer.Exit(outcome.status)
