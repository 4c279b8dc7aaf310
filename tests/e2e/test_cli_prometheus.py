"""``geokv run --prometheus``: a real run, read while it goes on, and once more at its end."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path

import pytest
from cli import SMALL, Geokv
from prometheus_client.parser import text_string_to_metric_families
from prometheus_server import endpoint_of

WAIT_S = 240.0


def read(url: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Metric → values of its labels → number."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            key = tuple(one.labels[name] for name in sorted(one.labels))
            found.setdefault(one.name.removeprefix("geokv_run_"), {})[key] = one.value
    return found


@pytest.mark.timeout(400)
def test_a_run_is_counted_as_it_goes_and_tells_its_verdict(
    geokv: Geokv, vm: None, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = geokv.start("run", "smoke", *SMALL, "--prometheus", 0, "--json", "--out", out)
    try:
        url = endpoint_of(process)
        first = read(url)
        assert first["verdict"]["running",] == 1 and first["requests_planned"][()] == 6
        assert set(first["requests_total"].values()) == {0}
        verdict, last, end_s = "running", first, time.monotonic() + WAIT_S
        while verdict == "running" and time.monotonic() < end_s:
            time.sleep(0.5)
            last = read(url)
            (verdict,) = [name for (name,), on in last["verdict"].items() if on]
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, verdict) == (0, "pass"), stderr
    assert json.loads(stdout)["verdict"] == "pass"
    assert sum(last["requests_total"].values()) == 6
    rows = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    asked = [row for row in rows if row["event"] == "request" and not row["warmup"]]
    assert last["wire_bytes_total"]["b",] == sum(row["wire_bytes"] for row in asked) > 0
    assert sum(last["prompt_tokens_total"].values()) == sum(row["prompt_tokens"] for row in asked)
    assert last["prompt_tokens_total"]["b", "remote"] == 2 * 512, "one remote hit in each cell"
    samples = [row for row in rows if row["event"] == "sample"]
    sent = samples[-1]["links"]["a-b"]["bytes"]
    assert last["link_bytes_total"]["a to b", "a-b"] == sent[0] > 0
    assert last["site_up"]["a",] == last["site_up"]["b",] == 1
    assert "waiting for Prometheus to read the verdict" in stderr
