"""Sixty-four sites at once, each with its HTTP door and its KV server, and no model."""

from __future__ import annotations

import http.client
import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from geokv.clock import now_ns
from geokv.coordinator.deploy import API_PORT, site_settings, tenants
from geokv.coordinator.fleet import Fleet
from geokv.engine.profile import load_profile
from geokv.lab.build import Lab
from geokv.lab.check import check_links
from geokv.lab.enter import in_netns
from geokv.lab.plan import compile_plan
from geokv.scenario import load_scenario
from geokv.scenario.prompts import question, shared_prefix
from geokv.units import NS_PER_S

PREFIX_TOKENS, QUESTION_TOKENS, CHUNK_TOKENS = 2048, 32, 256
SCENARIO = load_scenario(
    "smoke",
    [
        "topology=scale-64",
        "sweep=[]",
        "deployment.content=synthetic",
        "deployment.byte_scale=64",
        f"deployment.chunk_tokens={CHUNK_TOKENS}",
        "cache.directory.site=h0",
        "workload.provider=h0",
        "workload.asker=h4d",
        f"workload.prefix_tokens={PREFIX_TOKENS}",
        f"workload.question_tokens={QUESTION_TOKENS}",
        "workload.deadline=60s",
    ],
)
KEY = tenants(SCENARIO)[0].api_key


@dataclass
class Answer:
    """What a client in a site's access network saw."""

    sent_ns: int = 0
    first_ns: int = 0
    text: str = ""
    record: dict[str, Any] = field(default_factory=dict)


@dataclass
class Region:
    lab: Lab
    fleet: Fleet

    def ask(self, site: str, name: str, tokens: list[int]) -> Answer:
        """One streamed completion, from the site's own clients."""
        body = {
            "model": SCENARIO.deployment.model,
            "prompt": tokens,
            "max_tokens": 8,
            "stream": True,
        }
        headers = {"Authorization": f"Bearer {KEY}", "X-Request-Id": f"{name}-{site}"}
        address = (self.lab.address(site), API_PORT)
        with in_netns(self.lab.access_netns(site)):
            door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        door.settimeout(120)
        http_ = http.client.HTTPConnection(*address)
        http_.sock = door
        answer = Answer()
        try:
            door.connect(address)
            answer.sent_ns = now_ns()
            http_.request("POST", "/v1/completions", json.dumps(body), headers)
            response = http_.getresponse()
            assert response.status == 200, response.read()
            for line in response:
                if line.startswith(b"data: {"):
                    answer.first_ns = answer.first_ns or now_ns()
                    answer.text += json.loads(line[6:])["choices"][0]["text"]
        finally:
            http_.close()
        answer.record = self.fleet.sites[site].get(f"/requests/{name}-{site}")["record"]
        return answer

    def ask_all(self, sites: list[str], name: str, tokens: list[int]) -> dict[str, Answer]:
        """The same question at many sites at the same moment."""
        answers: dict[str, Answer] = {}

        def one(site: str) -> None:
            answers[site] = self.ask(site, name, tokens)

        threads = [threading.Thread(target=one, args=(site,)) for site in sites]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        assert len(answers) == len(sites)
        return answers


@pytest.fixture(scope="module")
def region() -> Iterator[Region]:
    plan = compile_plan(SCENARIO.topology, SCENARIO.deployment.byte_scale, SCENARIO.seed)
    folder = Path(tempfile.mkdtemp(prefix="scale-", dir="/run"))
    with Fleet() as fleet, Lab.build(plan) as lab:
        for settings in site_settings(SCENARIO, SCENARIO, lab, folder / "control", folder, "0", 1):
            fleet.start_site(settings, lab.netns(settings.name))
        fleet.wait_ready()
        yield Region(lab, fleet)


def test_every_link_keeps_to_its_plan(region: Region) -> None:
    assert len(region.lab.plan.sites) == len(region.lab.plan.links) == 64
    assert [found.problems for found in check_links(region.lab) if not found.ok] == []


def test_every_site_is_as_far_from_the_directory_as_its_path(region: Region) -> None:
    plan = region.lab.plan
    for number, site in enumerate(plan.sites[1:]):
        first, second = (
            [*shared_prefix(1000 * way + number, CHUNK_TOKENS, 256), number] for way in (1, 2)
        )
        region.ask(site, "connecting", first)
        record = region.ask(site, "connected", second).record
        assert record["source"] == "none"
        lookup_ns = record["looked_up_ns"] - record["admitted_ns"]
        assert 0 <= lookup_ns - plan.path("h0", site).rtt_ns <= 60_000, (site, lookup_ns)


def test_one_prefix_serves_all(region: Region) -> None:
    plan, sites = region.lab.plan, region.fleet.sites
    tokens = shared_prefix(SCENARIO.seed, PREFIX_TOKENS, 256)
    tokens += question(SCENARIO.seed, 0, 0, QUESTION_TOKENS, 256)
    cold = region.ask("h0", "shared", tokens)
    assert cold.record["source"] == "none" and len(cold.text) == 8
    sites["h0"].post("/settle")
    askers = list(plan.sites[1:])
    answers = region.ask_all(askers, "shared", tokens)
    profile = load_profile(SCENARIO.deployment.stands_for)
    rest_ns = profile.prefill_s(QUESTION_TOKENS, PREFIX_TOKENS) * NS_PER_S
    bits = 8 * PREFIX_TOKENS * profile.kv_bytes_per_token / SCENARIO.deployment.byte_scale
    for site, answer in answers.items():
        assert answer.text == cold.text, site
        assert answer.record["source"] == "remote", site
        assert answer.record["cached_tokens"] == PREFIX_TOKENS, site
        # one round trip to the directory, one to a site that has it, and the bytes
        path = plan.path("h0", site)
        wire_ns = bits * NS_PER_S / path.payload_rate_bps
        nearest_ns = min(plan.path(site, other).rtt_ns for other in plan.sites if other != site)
        least_ns = path.rtt_ns + nearest_ns + wire_ns + rest_ns
        assert answer.first_ns - answer.sent_ns >= least_ns, site
    for site, handle in sites.items():
        handle.post("/settle")
        assert handle.get("/integrity") == {"integrity": "ok"}, site
    directory = sites["h0"].get("/stats")["cache"]["directory"]
    # 64 sites with the prefix, 63 of them with two chunks of their own
    assert directory["entries"] == 64 * PREFIX_TOKENS // CHUNK_TOKENS + 63 * 2


def test_it_fits_a_small_machine(region: Region) -> None:
    memory = {
        line.split(":")[0]: int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
    }
    used = memory["MemTotal"] - memory["MemAvailable"]
    assert used / len(region.fleet.sites) < 60 * 2**20
