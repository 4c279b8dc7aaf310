"""The command as a user types it: every test here runs ``python -m geokv`` as a process.

Whole runs take most of the time, so tests share them through session fixtures.
"""

from __future__ import annotations

import pytest
from cli import Geokv, Run

from geokv.errors import GeokvError
from geokv.vm.kernel import require_kernel

SMALL = (
    *("--set", "workload.requests=1"),
    *("--set", "workload.prefix_tokens=512"),
    *("--set", "workload.warmup=0"),
)
"""Makes a smoke run smaller."""


@pytest.fixture(scope="session")
def geokv(tmp_path_factory: pytest.TempPathFactory) -> Geokv:
    """The command, in a working folder of its own."""
    return Geokv(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="session")
def vm() -> None:
    """Skips what needs the guest kernel where it is not built."""
    try:
        require_kernel()
    except GeokvError as error:
        pytest.skip(f"{error.message} ({error.hint})")


@pytest.fixture(scope="session")
def smoke(geokv: Geokv, vm: None) -> Run:
    """scenarios/smoke.yaml as it is."""
    return geokv.run_scenario("smoke")


@pytest.fixture(scope="session")
def smoke_again(geokv: Geokv, vm: None) -> Run:
    """The same once more."""
    return geokv.run_scenario("smoke")


@pytest.fixture(scope="session")
def other_seed(geokv: Geokv, vm: None) -> Run:
    """A smaller one with another seed."""
    return geokv.run_scenario("smoke", "--seed", "77", *SMALL)
