"""Tests of the embedded VM: they need the built guest kernel and say so when it is not there."""

from __future__ import annotations

import pytest

from geokv.errors import HostError
from geokv.vm.boot import Clock
from geokv.vm.place import Place, in_vm


def _vm(clock: Clock) -> Place:
    try:
        return in_vm(clock)
    except HostError as error:
        pytest.skip(f"{error.message} ({error.hint})")


@pytest.fixture(scope="session")
def virtual() -> Place:
    """The VM with the virtual clock."""
    return _vm("virtual")


@pytest.fixture(scope="session")
def wall() -> Place:
    """The VM with the real clock."""
    return _vm("wall")
