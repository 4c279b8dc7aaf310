"""A public load generator, unchanged, against a site 100 km away: it sees what our client sees."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from geokv.coordinator.client import Question
from geokv.coordinator.deploy import site_settings, tenants
from geokv.coordinator.fleet import Fleet
from geokv.lab.build import Lab
from geokv.lab.enter import in_netns
from geokv.lab.plan import compile_plan
from geokv.scenario import load_scenario

REQUESTS = 6
PROMPT_CHARACTERS = 1500
RTT_MS = 1.0

# guidellm runs more waiting threads than asyncio's pool has where there is one processor, as
# in the VM, and then waits for itself. Its worker processes read this file too.
MORE_PROCESSORS = "import os\n\nos.cpu_count = lambda: 8\n"


def find_guidellm():
    beside = Path(sys.executable).with_name("guidellm")
    return str(beside) if beside.exists() else shutil.which("guidellm")


def prompts():
    """Plain text that differs from its first word on."""
    rng = random.Random(7)
    words = ("fibre", "light", "cache", "metro", "prefill", "block", "ring", "decode")
    return [
        "".join(f"{rng.choice(words)} " for _ in range(400))[:PROMPT_CHARACTERS]
        for _ in range(REQUESTS)
    ]


def run_guidellm(command, url, key, netns, folder):
    """Its successful requests, in order."""
    data = folder / "prompts.jsonl"
    rows = [{"prompt": text, "output_tokens_count": 4} for text in prompts()]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "sitecustomize.py").write_text(MORE_PROCESSORS)
    backend = f"kind=openai_http,target={url},api_key={key},request_format=/v1/completions"
    arguments = [
        *("--backend", backend),
        *("--profile", "kind=synchronous"),
        *("--constraint", f"kind=max_requests,count={REQUESTS}"),
        *("--data", f"kind=json_file,path={data}"),
        *("--output", f"kind=json,path={folder / 'report.json'}"),
        "--disable-console-interactive",
    ]
    environment = {**os.environ, "PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1"}
    with in_netns(netns):
        done = subprocess.run(
            [command, "run", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    benchmark = json.loads((folder / "report.json").read_text())["benchmarks"][0]
    assert not benchmark["requests"]["errored"] and not benchmark["requests"]["incomplete"]
    return sorted(benchmark["requests"]["successful"], key=lambda one: one["request_start_time"])


def test_guidellm_measures_the_ttft_that_we_do(tmp_path):
    command = find_guidellm()
    if command is None:
        pytest.skip("guidellm is not installed: pip install 'geokv[loadgen]'")
    scenario = load_scenario("smoke", ["links.a-b.km=100"])
    plan = compile_plan(scenario.topology, scenario.deployment.byte_scale, scenario.seed)
    key = tenants(scenario)[0].api_key
    with Fleet() as fleet, Lab.build(plan) as lab:
        settings = site_settings(scenario, scenario, lab, tmp_path / "control", tmp_path, "0", 1)
        here = next(one for one in settings if one.name == "a")
        fleet.start_site(here, lab.netns("a"))
        fleet.start_client("b", lab.access_netns("b"))
        fleet.wait_ready()
        site, url = fleet.sites["a"], f"http://{lab.address('a')}:{here.api_port}"
        # Everything is computed every time, so that both clients ask the same of the site.
        site.post("/policy", reuse="none")
        theirs = run_guidellm(command, url, key, lab.access_netns("b"), tmp_path)
        assert len(theirs) == REQUESTS
        # The first of each client also opens its connection, which costs a round trip.
        for number, text in enumerate(prompts()):
            question = Question(
                f"ours-{number}",
                f"{url}/v1/completions",
                key,
                scenario.deployment.model,
                [256, *text.encode()],
                4,
                60.0,
            )
            reply = fleet.clients["b"].ask(question)
            assert reply.error is None and reply.first_ns is not None
            if number == 0:
                continue
            ours_ms = (reply.first_ns - reply.sent_ns) / 1e6
            theirs_ms = theirs[number]["time_to_first_token_ms"]
            assert text in theirs[number]["request_args"]
            assert theirs_ms == pytest.approx(ours_ms, rel=0.01)
            name = theirs[number]["response_id"].removeprefix("cmpl-")
            record = site.get(f"/requests/{name}")["record"]
            site_ms = (record["prefilled_ns"] - record["started_ns"]) / 1e6
            assert theirs_ms == pytest.approx(site_ms + RTT_MS, rel=0.01)
            assert theirs[number]["prompt_tokens"] == record["prompt_tokens"] == 1501
            assert theirs[number]["output_tokens"] == len(record["output_ids"]) == 4
            print(f"{number}: guidellm {theirs_ms:.3f} ms, ours {ours_ms:.3f} ms")
        assert site.get("/integrity") == {"integrity": "ok"}
