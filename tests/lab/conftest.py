"""Tests of the built network: they need root and a kernel with netem (the VM has both)."""

import os
from pathlib import Path

import pytest

from geokv.lab.capabilities import NEEDED, probe_capabilities

HERE = Path(__file__).parent


def missing():
    if os.geteuid() != 0:
        return "needs root"
    found = probe_capabilities()
    lacks = [f"{name}: {found[name].reason}" for name in NEEDED if not found[name].ok]
    return f"this kernel cannot build a lab ({', '.join(lacks)})" if lacks else ""


def pytest_collection_modifyitems(items):
    mine = [item for item in items if HERE in item.path.parents]
    reason = missing() if mine else ""
    for item in mine:
        item.add_marker(pytest.mark.vm)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
