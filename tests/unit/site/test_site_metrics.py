"""Each metric against requests made by hand, and against a site that really served."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from site_processes import ACME, OTHER, SiteRoom, prompt, wait_for

from geokv.engine.loop import LoopStats
from geokv.engine.room import EngineStats
from geokv.site.metrics import Metrics
from geokv.site.record import CLIENT_GONE, RequestRecord

S = 1_000_000_000
MODEL = "geokv-tiny"


@dataclass
class Figures:
    """A worker's live figures, set by hand."""

    loop_stats: LoopStats
    engine_stats: EngineStats
    tier_stats: dict[str, int]
    loop: Any = field(init=False)
    engine: Any = field(init=False)
    cache: Any = field(init=False)

    def __post_init__(self) -> None:
        self.loop = SimpleNamespace(stats=lambda: self.loop_stats)
        self.engine = SimpleNamespace(
            stats=lambda: self.engine_stats, limit_tokens=1000, block_tokens=16
        )
        self.cache = SimpleNamespace(tier=SimpleNamespace(stats=lambda: self.tier_stats))


def figures(**engine: int) -> Figures:
    counts = dict.fromkeys(EngineStats.__dataclass_fields__, 0)
    counts |= {"blocks": 80, "blocks_free": 50, "blocks_cached": 10, "blocks_pinned": 20}
    return Figures(
        LoopStats(waiting=3, loading=2, running=7, preemptions=5, refused=4, finished=9),
        EngineStats(**(counts | engine)),
        {"free": 1, "cached": 2, "reserved": 3, "leaving": 4, "evictions": 6},
    )


def record(**fields: Any) -> RequestRecord:
    """100 prompt tokens, three tokens out; every step one second, unless said otherwise."""
    basic: dict[str, Any] = {
        "request_id": "r",
        "tenant": "t",
        "prompt_tokens": 100,
        "started_ns": 10 * S,
        "admitted_ns": 11 * S,
        "looked_up_ns": 12 * S,
        "last_byte_ns": 12 * S,
        "usable_ns": 12 * S,
        "loaded_ns": 12 * S,
        "scheduled_ns": 13 * S,
        "prefilled_ns": 15 * S,
        "finished_ns": 15 * S + S // 2,
        "token_ns": [15 * S, 15 * S + S // 5, 15 * S + S // 2],
        "output_ids": [1, 2, 3],
        "completion_tokens": 3,
        "finish": ["length"],
    }
    return RequestRecord(**(basic | fields))


def scraped(text: bytes | str) -> dict[str, float]:
    """``name{labels beyond model and engine}`` to value."""
    found = {}
    decoded = text.decode() if isinstance(text, bytes) else text
    for family in text_string_to_metric_families(decoded):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("model_name") == MODEL and labels.pop("engine") == "0"
            shown = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
            found[f"{sample.name}{{{shown}}}" if shown else sample.name] = sample.value
    return found


def after(*records: RequestRecord, worker: Any = None) -> dict[str, float]:
    metrics = Metrics(MODEL, worker or figures())
    for one in records:
        metrics.observe(one)
    return scraped(metrics.text())


def test_live_figures_are_those_of_the_moment() -> None:
    worker = figures(steps=11, prefill_tokens=12, evicted_blocks=13)
    metrics = Metrics(MODEL, worker)
    found = scraped(metrics.text())
    expected = {
        "vllm:num_requests_running": 7,
        "vllm:num_requests_waiting": 5,
        "vllm:kv_cache_usage_perc": 0.25,
        "vllm:num_preemptions_total": 5,
        "vllm:cache_config_info{block_size=16,num_gpu_blocks=80}": 1,
        "geokv_requests_loading": 2,
        "geokv_requests_refused_total": 4,
        "geokv_steps_total": 11,
        "geokv_computed_prompt_tokens_total": 12,
        "geokv_evicted_blocks_total": 13,
        "geokv_device_blocks{state=free}": 50,
        "geokv_device_blocks{state=cached}": 10,
        "geokv_device_blocks{state=pinned}": 20,
        "geokv_dram_slots{state=free}": 1,
        "geokv_dram_slots{state=cached}": 2,
        "geokv_dram_slots{state=reserved}": 3,
        "geokv_dram_slots{state=leaving}": 4,
        "geokv_dram_evictions_total": 6,
    }
    assert {name: found[name] for name in expected} == expected
    worker.loop_stats = LoopStats(0, 0, 1, 6, 4, 10)
    later = scraped(metrics.text())
    assert later["vllm:num_requests_running"] == 1
    assert later["vllm:num_requests_waiting"] == 0
    assert later["vllm:num_preemptions_total"] == 6


def test_times_of_a_request_are_vllms_intervals() -> None:
    found = after(record(), record(prefilled_ns=14 * S))
    sums = {
        "vllm:time_to_first_token_seconds": 5 + 4,
        "vllm:request_queue_time_seconds": 3 + 3,
        "vllm:request_prefill_time_seconds": 2 + 1,
        "vllm:request_decode_time_seconds": 0.5 + 1.5,
        "vllm:request_inference_time_seconds": 2.5 + 2.5,
        "vllm:e2e_request_latency_seconds": 5.5 + 5.5,
        "vllm:request_prompt_tokens": 200,
        "vllm:request_generation_tokens": 6,
        "geokv_request_lookup_seconds": 2,
        "geokv_request_fetch_seconds": 0,
        "geokv_request_load_seconds": 0,
    }
    for name, total in sums.items():
        assert found[f"{name}_sum"] == pytest.approx(total), name
        assert found[f"{name}_count"] == 2, name
    assert found["vllm:inter_token_latency_seconds_count"] == 4
    assert found["vllm:inter_token_latency_seconds_sum"] == pytest.approx(1.0)
    assert found["vllm:request_time_per_output_token_seconds_sum"] == pytest.approx(0.5)


def test_buckets_are_vllms() -> None:
    found = after(record())
    first = {key: value for key, value in found.items() if "time_to_first_token_seconds_b" in key}
    assert first["vllm:time_to_first_token_seconds_bucket{le=2.5}"] == 0
    assert first["vllm:time_to_first_token_seconds_bucket{le=5.0}"] == 1
    assert first["vllm:time_to_first_token_seconds_bucket{le=2560.0}"] == 1
    assert len(first) == 23
    assert found["vllm:inter_token_latency_seconds_bucket{le=0.2}"] == 1
    assert found["vllm:inter_token_latency_seconds_bucket{le=0.3}"] == 2
    assert found["vllm:e2e_request_latency_seconds_bucket{le=5.0}"] == 0
    assert found["vllm:request_prompt_tokens_bucket{le=50.0}"] == 0
    assert found["vllm:request_prompt_tokens_bucket{le=100.0}"] == 1
    lengths = [key for key in found if key.startswith("vllm:request_prompt_tokens_bucket")]
    assert "vllm:request_prompt_tokens_bucket{le=1000.0}" in lengths
    assert "vllm:request_prompt_tokens_bucket{le=2000.0}" not in lengths


def test_reuse_is_counted_by_where_it_came_from() -> None:
    found = after(
        record(),
        record(device_tokens=32, cached_tokens=32),
        record(device_tokens=16, cached_tokens=80, chunks_local=2),
        record(
            cached_tokens=64,
            chunks_local=1,
            chunks_remote=1,
            wire_bytes=4096,
            misses=Counter(absent=2, timeout=1),
            last_byte_ns=12 * S + S // 4,
            usable_ns=12 * S + S // 4,
            loaded_ns=12 * S + S // 2,
        ),
    )
    expected = {
        "vllm:prefix_cache_queries_total": 400,
        "vllm:prefix_cache_hits_total": 48,
        "vllm:external_prefix_cache_queries_total": 352,
        "vllm:external_prefix_cache_hits_total": 128,
        "geokv_requests_total{source=none}": 1,
        "geokv_requests_total{source=device}": 1,
        "geokv_requests_total{source=dram}": 1,
        "geokv_requests_total{source=remote}": 1,
        "geokv_chunks_total{tier=dram}": 3,
        "geokv_chunks_total{tier=remote}": 1,
        "geokv_wire_bytes_total": 4096,
        "geokv_misses_total{cause=absent}": 2,
        "geokv_misses_total{cause=timeout}": 1,
    }
    assert {name: found[name] for name in expected} == expected
    assert found["geokv_request_fetch_seconds_sum"] == pytest.approx(0.25)
    assert found["geokv_request_load_seconds_sum"] == pytest.approx(0.25)


def test_ends_are_counted_per_answer_and_every_reason_is_there_from_the_start() -> None:
    reasons = [
        f"vllm:request_success_total{{finished_reason={why}}}"
        for why in ("stop", "length", "abort", "error")
    ]
    nothing = after()
    assert [nothing[reason] for reason in reasons] == [0, 0, 0, 0]
    found = after(
        record(finish=["stop", "length", "length"], completion_tokens=9),
        record(finish=[], error=CLIENT_GONE),
        record(finish=["stop"], error="the request's deadline has passed"),
    )
    assert [found[reason] for reason in reasons] == [2, 2, 1, 1]
    assert found["vllm:generation_tokens_total"] == 9 + 3 + 3


def test_request_that_was_never_computed_counts_as_nothing_else() -> None:
    refused = record(
        admitted_ns=0,
        scheduled_ns=0,
        prefilled_ns=0,
        completion_tokens=0,
        finish=[],
        token_ns=[],
        output_ids=[],
        error="256 requests are waiting already",
    )
    found = after(refused)
    assert found["vllm:request_success_total{finished_reason=error}"] == 1
    counted = {name for name, value in found.items() if value and not name.startswith("geokv_d")}
    live = {name for name, value in after().items() if value}
    assert counted - live == {"vllm:request_success_total{finished_reason=error}"}


def test_there_is_no_time_of_day_in_it() -> None:
    assert b"_created" not in Metrics(MODEL, figures()).text()


def test_a_site_counts_what_it_served(room: SiteRoom) -> None:
    site = room.start(room.settings("a", operator_keys=("sk-operator",)))
    headers = {"Authorization": f"Bearer {ACME.api_key}"}
    with httpx.Client(base_url=site.url, headers=headers, trust_env=False, timeout=20) as http:
        body = {"model": MODEL, "prompt": prompt(40), "max_tokens": 3, "ignore_eos": True}
        for more in ({}, {"n": 2}):
            http.post("/v1/completions", json={**body, **more}).raise_for_status()
        http.post("/v1/completions", json={**body, "max_tokens": 10**6})
        with http.stream(
            "POST", "/v1/completions", json={**body, "max_tokens": 5000, "stream": True}
        ) as stream:
            next(stream.iter_lines())
        wait_for("the end of it", lambda: site.get("/stats")["loop"]["running"] == 0)
        answer = http.get("/metrics", headers={"Authorization": ""})
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = scraped(answer.text)
    assert found["vllm:request_success_total{finished_reason=length}"] == 3
    assert found["vllm:request_success_total{finished_reason=abort}"] == 1
    assert found["vllm:prompt_tokens_total"] == 120
    assert found["vllm:generation_tokens_total"] >= 10
    assert found["vllm:prefix_cache_queries_total"] == 120
    assert found["vllm:prefix_cache_hits_total"] == 64
    assert found["vllm:time_to_first_token_seconds_count"] == 3
    assert found["vllm:num_requests_running"] == 0
    assert found["geokv_requests_total{source=none}"] == 1
    assert found["geokv_requests_total{source=device}"] == 2


def test_metrics_are_for_this_machine_and_the_operator(room: SiteRoom) -> None:
    """uvicorn takes the address of a client behind a proxy on this machine from its header."""
    site = room.start(room.settings("a", operator_keys=("sk-operator",)))
    far = {"X-Forwarded-For": "192.0.2.7"}

    def status(**headers: str) -> int:
        return httpx.get(f"{site.url}/metrics", headers=headers, trust_env=False).status_code

    assert status() == 200
    assert status(**far) == 401
    for tenant in (ACME, OTHER):
        assert status(**far, Authorization=f"Bearer {tenant.api_key}") == 401
    assert status(**far, Authorization="Bearer sk-operator") == 200
