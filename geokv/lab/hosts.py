"""Mininet hosts as the sites of a lab."""

from __future__ import annotations

import os
import shutil
import subprocess
import warnings
from typing import Any

from geokv.errors import LabError
from geokv.lab.journal import Journal

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it imports distutils
    from mininet.node import Host, Node


#: Open files of a host's shell. ``mnexec`` closes every number below its limit, one by one:
#: at 1024 that is a third of the time a host takes to start, at 16384 nearly all of it.
_SHELL_FILES = 256


_TOOLS = (("mnexec", "mininet"), ("ifconfig", "net-tools"), ("prlimit", "util-linux"))


def few_files(command: list[str]) -> list[str]:
    """``command`` with a small limit of open files, whatever this process has."""
    return ["prlimit", f"--nofile={_SHELL_FILES}:", *command]


class SiteHost(Host):  # type: ignore[misc]
    """A Mininet host whose shell is written in the journal before it starts."""

    def __init__(self, name: str, journal: Journal) -> None:
        self._journal = journal
        self._entry = journal.record("process", name=f"shell of site {name}")
        super().__init__(name)

    def _popen(self, cmd: list[str], **params: Any) -> subprocess.Popen[bytes]:
        marker = self._journal.environment(self._entry)
        shell = subprocess.Popen(few_files(cmd), env={**os.environ, **marker}, **params)
        self._journal.process_started(self._entry, shell.pid)
        return shell

    def stop(self, deleteIntfs: bool = False) -> None:
        """End the shell and forget it everywhere."""
        if self.shell is None:
            return
        descriptors = (self.stdout.fileno(), self.stdin.fileno())
        super().stop(deleteIntfs)
        for descriptor in descriptors:
            Node.outToNode.pop(descriptor, None)
            Node.inToNode.pop(descriptor, None)
        self._journal.done(self._entry)


def require_mininet_tools() -> None:
    """Mininet exits the interpreter when its helpers are missing; say it first.

    Raises:
        LabError: names the missing tool.
    """
    for tool, package in _TOOLS:
        if shutil.which(tool) is None:
            raise LabError(f"{tool} is missing", f"sudo apt-get install {package}")
