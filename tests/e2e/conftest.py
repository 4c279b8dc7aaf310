"""The command as a user types it: every test here runs ``python -m geokv`` as a process.

Whole runs take most of the time, so tests share them through session fixtures.
"""

from __future__ import annotations

import csv
import importlib.metadata
import signal
from pathlib import Path

import pytest
import yaml
from cli import SMALL, Geokv, Run

from geokv.errors import GeokvError
from geokv.paths import CHECKOUT
from geokv.vm.kernel import require_kernel

SCENARIOS = CHECKOUT / "scenarios"
REFERENCE = CHECKOUT / "results" / "reference"

# A shell that runs the tests in its background ignores Ctrl-C, nohup ignores a hang-up, and what
# they start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


LONG = ("test_reference", "test_shipped_drills", "test_drill_command", "test_tutorials")
"""Files that take five minutes and more. They begin first, or one worker has the last of them
for itself while the other has nothing left to do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


def table_of(folder: Path) -> list[dict[str, str]]:
    """Rows of the ``table.csv`` of a run folder, or of a reference, without the one column that is
    this processor's arithmetic: with other vector units sums are rounded in another order."""
    with (folder / "table.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        row.pop("first_logits_diff", None)
    return rows


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
def pinned() -> None:
    """Skips what is exact only with the packages that the reference tables were made with."""
    for line in (CHECKOUT / "constraints.txt").read_text().splitlines():
        name, pin, wanted = line.partition("==")
        if not pin or line.startswith("#"):
            continue
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = "none"
        if found.partition("+")[0] != wanted:
            pytest.skip(f"{name} is {found}, and {wanted} in constraints.txt: times may move by µs")


@pytest.fixture(scope="session")
def _twins(geokv: Geokv, vm: None) -> list[Run]:
    return geokv.run_scenarios(["smoke"], ["smoke"])


@pytest.fixture(scope="session")
def smoke(_twins: list[Run]) -> Run:
    """scenarios/smoke.yaml as it is."""
    return _twins[0]


@pytest.fixture(scope="session")
def smoke_again(_twins: list[Run]) -> Run:
    """The same once more, in another VM at the same time."""
    return _twins[1]


@pytest.fixture(scope="session")
def _seed_and_failure(geokv: Geokv, vm: None) -> list[Run]:
    return geokv.run_scenarios(["smoke", "--seed", "77", *SMALL], [_pagewise(geokv)])


@pytest.fixture(scope="session")
def other_seed(_seed_and_failure: list[Run]) -> Run:
    """A smaller smoke run with another seed."""
    return _seed_and_failure[0]


@pytest.fixture(scope="session")
def failing(_seed_and_failure: list[Run]) -> Run:
    """A page a round trip, one in flight: distance breaks the 8 %."""
    return _seed_and_failure[1]


def _pagewise(geokv: Geokv) -> Path:
    small = yaml.safe_load((SCENARIOS / "distance_pagewise.yaml").read_text())
    small["name"] = "small_pagewise"
    small["deployment"].update(byte_scale=16, device_bytes="8GiB", dram_bytes="8GiB")
    small["workload"].update(prefix_tokens=1024, question_tokens=32, requests=1, warmup=0)
    small["sweep"] = [{"path": "links.a-b.km", "values": [0, 100]}]
    small["vm"] = {"memory": "3GiB", "jobs": 1}
    path = geokv.folder / "small_pagewise.yaml"
    path.write_text(yaml.safe_dump(small))
    return path
