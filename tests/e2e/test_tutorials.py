"""Every command of the tutorials, as a reader would type them, beside the files they show.

A block with a title is a file, a ``sh`` block is run, ``console`` and ``text`` blocks are to be
read: they need another machine, or hours. ``sudo .venv/bin/geokv`` is run as ``geokv``: no test is
root on the host.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from geokv.paths import CHECKOUT

TUTORIALS = sorted((CHECKOUT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_TIMEOUT_S = 540


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_every_command_does_what_the_tutorial_says(path: Path, tmp_path: Path, vm: None) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, call in (("geokv", "-m geokv"), ("python", "")):
        command = commands / name
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {call} "$@"\n')
        command.chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    environment = {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": str(CHECKOUT),
        "TERM": "dumb",
    }
    ran = 0
    for language, title, text in BLOCK.findall(path.read_text(encoding="utf-8")):
        if title:
            (folder / title).parent.mkdir(parents=True, exist_ok=True)
            (folder / title).write_text(text)
        elif language == "sh":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text.replace("sudo .venv/bin/geokv", "geokv")],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
            )
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
            assert "Traceback" not in done.stderr, done.stderr
            ran += 1
    assert ran, "a tutorial without a command"
