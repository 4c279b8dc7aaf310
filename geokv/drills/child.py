"""One run in a process of its own, so that nothing it does ends another.

The processes are forked from one that has imported everything once. A child takes no signal of
the terminal: whoever started it tells it to stop, and it then ends its VMs. Should its parent die,
nobody reads what it reports, and it ends as well.
"""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import select
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from geokv.ending import code_of, take_signals
from geokv.errors import GeokvError
from geokv.scenario import Scenario, load_scenario

PRELOAD = ("geokv.drills.apart", "geokv.runner", "geokv.report.sheet.write")
Pages = Literal["always", "unless-pass", "never"]
"""Of which runs tables, sheets and drawings are made: they cost more than judging does."""
STOP_S = 30.0
"""Longer than VMs take to be ended; a child that is still there then is killed."""


def run_in_child(
    channel: Connection, data: dict[str, Any], out: Path | None, root: Path, pages: Pages
) -> None:
    """Run a resolved scenario; send ``(kind, value)`` pairs and a last one:

    ``step`` a step of the run · ``done`` its summary · ``error`` (message, hint) · ``stopped``
    the exit code of what stopped it.
    """
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    take_signals()
    threading.Thread(target=_end_without_reader, args=(channel.fileno(),), daemon=True).start()
    from geokv.report.outputs import FORMATS
    from geokv.report.run_folder import write_all
    from geokv.runner import run_scenario

    def step(one: dict[str, Any]) -> None:
        channel.send(("step", one))

    def end(kind: str, value: Any) -> None:
        # Whoever has asked for it may be gone.
        with contextlib.suppress(OSError):
            channel.send((kind, value))

    try:
        formats = FORMATS if pages == "always" else ()
        folder, summary = run_scenario(load_scenario(data), out, step, root, formats=formats)
        if pages == "unless-pass" and summary["verdict"] != "pass":
            write_all(folder)
        end("done", summary)
    except GeokvError as error:
        end("error", (error.message, error.hint))
    except KeyboardInterrupt as error:
        end("stopped", code_of(error))
    except BrokenPipeError:
        pass
    except Exception:
        # A defect of ours ends this drill and no other; its trace is what can be said of it.
        end("error", (traceback.format_exc(), "this is a defect of geokv"))
    finally:
        channel.close()


def _end_without_reader(pipe: int) -> None:
    """Wait until nobody can read from the other end, then stop this process."""
    poll = select.poll()
    # An error is told whatever one asks for.
    poll.register(pipe, 0)
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)


class Child:
    """One run that is going on."""

    def __init__(
        self,
        context: ForkServerContext,
        scenario: Scenario,
        out: Path | None,
        root: Path,
        pages: Pages = "always",
    ) -> None:
        self.channel, theirs = context.Pipe(duplex=False)
        self.process: BaseProcess = context.Process(
            target=run_in_child, args=(theirs, scenario.resolved(), out, root, pages)
        )
        self.process.start()
        theirs.close()

    def read(self, take: Callable[[str, Any], None]) -> bool:
        """Take one message; False when there will be none any more."""
        try:
            kind, value = self.channel.recv()
        except (EOFError, OSError):
            return False
        take(kind, value)
        return True

    def stop(self) -> None:
        """Have it end its VMs; returns at once."""
        if self.process.is_alive():
            self.process.terminate()

    def close(self) -> None:
        """Wait for its end, which has a limit."""
        self.process.join(STOP_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.channel.close()


def context() -> ForkServerContext:
    """Where children come from."""
    made = mp.get_context("forkserver")
    made.set_forkserver_preload(list(PRELOAD))
    return made
