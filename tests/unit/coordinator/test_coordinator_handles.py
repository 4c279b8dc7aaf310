"""The coordinator's hold on a site: clear words when it refuses, is slow or has died."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from site_processes import Site, SiteRoom, prompt

from geokv.coordinator.deploy import run_secret, tenants
from geokv.coordinator.fleet import SiteHandle
from geokv.errors import RunError
from geokv.scenario import load_scenario


@pytest.fixture
def site(own_room: SiteRoom) -> Site:
    return own_room.start(own_room.settings("a"))


@pytest.fixture
def held(site: Site) -> Iterator[SiteHandle]:
    made = SiteHandle(site.settings, site.process)
    yield made
    made._http.close()


def test_policy_and_integrity_travel(held: SiteHandle) -> None:
    assert held.post("/policy", reuse="none") == {"reuse": "none"}
    assert held.get("/integrity") == {"integrity": "ok"}


def test_refused_command_names_site_and_command(held: SiteHandle) -> None:
    with pytest.raises(RunError, match=r"site a: /policy"):
        held.post("/policy", reuse="sometimes")


async def test_forget_leaves_nothing_in_any_tier(site: Site, held: SiteHandle) -> None:
    assert (await site.ask("cached", prompt(100))).error is None
    held.post("/settle")
    assert held.get("/stats")["cache"]["tier"]["cached"] == 3
    assert site.engine()["blocks_cached"] > 0
    held.forget()
    assert held.post("/drop", tiers=["device", "dram", "disk"]) == {"device": 0, "dram": 0}


# httpcore leaves the socket of a refused UNIX connection to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_dead_site_is_named_with_how_it_ended(site: Site, held: SiteHandle) -> None:
    held.get("/stats")
    site.kill()
    site.process.join(5)
    started = time.monotonic()
    with pytest.raises(RunError, match=r"site a does not answer /stats: .*ended \(-9\)"):
        held.get("/stats")
    assert time.monotonic() - started < 2


def test_close_ends_the_process_cleanly(site: Site, held: SiteHandle) -> None:
    site.killed = True  # this test ends it
    held.close()
    assert site.process.exitcode == 0


def test_secrets_repeat_and_differ_by_purpose_and_seed() -> None:
    one, other = load_scenario("smoke"), load_scenario("smoke", ["seed=2"])
    assert run_secret(one, "sites") == run_secret(load_scenario("smoke"), "sites")
    secrets = {
        run_secret(scenario, purpose) for scenario in (one, other) for purpose in ("sites", "salt")
    }
    assert len(secrets) == 4
    assert tenants(one)[0].api_key != tenants(other)[0].api_key


def test_another_wording_or_setting_keeps_the_secrets() -> None:
    """So keys keep their order, and two set-ups that are compared differ in one thing only."""
    one = load_scenario("smoke")
    for change in ("title=Another", "links.a-b.km=71", "cache.substrate.streams=3"):
        other = load_scenario("smoke", [change])
        assert other.hash != one.hash
        assert tenants(other) == tenants(one)
