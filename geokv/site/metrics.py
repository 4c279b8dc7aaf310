"""``/metrics`` in Prometheus' text format.

Where vLLM has a metric that means the same, the name, the labels and the buckets are
vLLM's (``vllm/v1/metrics/loggers.py`` and ``buckets.py``, v0.28), so that its dashboards
and routers work here. What vLLM has no word for is called ``geokv_…``.

What belongs to a request
is counted once, when it ends: vLLM counts tokens as they are generated.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from geokv.site.live_figures import LABELS, LiveFigures
from geokv.site.record import CLIENT_GONE, RequestRecord
from geokv.site.worker import Worker
from geokv.units import NS_PER_S

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_FIRST_TOKEN_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
_REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_FETCH_S = (
    *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0),
)
"""Ours: from a round trip inside a city to the longest fetch anybody waits for."""


class Metrics:
    """What one worker tells Prometheus.

    Args:
        model: as the API names it, for the label ``model_name``.
        worker: whose live figures are read at every scrape.
    """

    def __init__(self, model: str, worker: Worker) -> None:
        # Those are the times of day at which counters were made.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry(auto_describe=False)
        self._labels = {"model_name": model, "engine": "0"}
        self._registry.register(LiveFigures(worker, (model, "0")))
        seconds, counter = self._histogram, self._counter
        self._first_token = seconds(
            "vllm:time_to_first_token_seconds", "From arrival to the first token.", _FIRST_TOKEN_S
        )
        self._between = seconds(
            "vllm:inter_token_latency_seconds", "Between tokens of one answer.", _TOKEN_S
        )
        self._per_token = seconds(
            "vllm:request_time_per_output_token_seconds",
            "Mean time between tokens of a request.",
            _TOKEN_S,
        )
        self._whole = seconds(
            "vllm:e2e_request_latency_seconds", "From arrival to the last token.", _REQUEST_S
        )
        self._queue = seconds(
            "vllm:request_queue_time_seconds",
            "From arrival to the first step, bringing KV here included.",
            _REQUEST_S,
        )
        self._prefill = seconds(
            "vllm:request_prefill_time_seconds",
            "From the first step to the first token.",
            _REQUEST_S,
        )
        self._decode = seconds(
            "vllm:request_decode_time_seconds", "From the first token to the last.", _REQUEST_S
        )
        self._inference = seconds(
            "vllm:request_inference_time_seconds",
            "From the first step to the last token.",
            _REQUEST_S,
        )
        lengths = _one_two_five(worker.engine.limit_tokens)
        self._prompt = seconds("vllm:request_prompt_tokens", "Tokens of a prompt.", lengths)
        self._answer = seconds(
            "vllm:request_generation_tokens", "Tokens of a request's answers.", lengths
        )
        self._prompt_tokens = counter("vllm:prompt_tokens", "Tokens of computed prompts.")
        self._generation_tokens = counter("vllm:generation_tokens", "Tokens generated.")
        self._queries = counter(
            "vllm:prefix_cache_queries", "Prompt tokens looked for on the device."
        )
        self._hits = counter("vllm:prefix_cache_hits", "Of those, found.")
        self._outer_queries = counter(
            "vllm:external_prefix_cache_queries",
            "Prompt tokens looked for beyond the device: in host memory and at other sites.",
        )
        self._outer_hits = counter("vllm:external_prefix_cache_hits", "Of those, brought here.")
        self._success = counter(
            "vllm:request_success", "Answers by how they ended.", "finished_reason"
        )
        self._lookup = seconds(
            "geokv_request_lookup_seconds", "Finding out who has the chunks of a prompt.", _FETCH_S
        )
        self._fetch = seconds(
            "geokv_request_fetch_seconds", "From knowing that to the last byte from afar.", _FETCH_S
        )
        self._load = seconds(
            "geokv_request_load_seconds", "From then until all of it is on the device.", _FETCH_S
        )
        self._sources = counter(
            "geokv_requests", "Requests by the farthest tier that gave something.", "source"
        )
        self._chunks = counter("geokv_chunks", "Chunks that were reused, by tier.", "tier")
        self._wire = counter("geokv_wire_bytes", "Bytes of chunks fetched from other sites.")
        self._misses = counter("geokv_misses", "Chunks that were not had, by cause.", "cause")
        for finish in ("stop", "length", "abort", "error"):
            self._success.labels(**self._labels, finished_reason=finish)

    def observe(self, record: RequestRecord) -> None:
        """Count one request that has ended."""
        mine = self._labels
        for finish in record.finish:
            self._success.labels(**mine, finished_reason=finish).inc()
        if record.error is not None:
            why = "abort" if record.error == CLIENT_GONE else "error"
            self._success.labels(**mine, finished_reason=why).inc()
        self._generation_tokens.labels(**mine).inc(record.completion_tokens)
        if record.admitted_ns:
            self._count_reuse(record)
        if record.prefilled_ns:
            self._prompt_tokens.labels(**mine).inc(record.prompt_tokens)
            self._time(record)

    def text(self) -> bytes:
        """Everything, in the text format 0.0.4."""
        return generate_latest(self._registry)

    def _count_reuse(self, record: RequestRecord) -> None:
        mine = self._labels
        beyond = record.prompt_tokens - record.device_tokens
        self._queries.labels(**mine).inc(record.prompt_tokens)
        self._hits.labels(**mine).inc(record.device_tokens)
        self._outer_queries.labels(**mine).inc(beyond)
        self._outer_hits.labels(**mine).inc(record.cached_tokens - record.device_tokens)
        self._sources.labels(**mine, source=record.source).inc()
        self._chunks.labels(**mine, tier="dram").inc(record.chunks_local)
        self._chunks.labels(**mine, tier="remote").inc(record.chunks_remote)
        self._wire.labels(**mine).inc(record.wire_bytes)
        for cause, count in record.misses.items():
            self._misses.labels(**mine, cause=cause).inc(count)

    def _time(self, record: RequestRecord) -> None:
        mine = self._labels
        first_ns, tokens = record.prefilled_ns, record.token_ns
        last_ns = max(record.finished_ns, first_ns)
        for histogram, from_ns, to_ns in (
            (self._first_token, record.started_ns, first_ns),
            (self._queue, record.started_ns, record.scheduled_ns),
            (self._prefill, record.scheduled_ns, first_ns),
            (self._decode, first_ns, last_ns),
            (self._inference, record.scheduled_ns, last_ns),
            (self._whole, record.started_ns, last_ns),
            (self._lookup, record.admitted_ns, record.looked_up_ns),
            (self._fetch, record.looked_up_ns, record.last_byte_ns),
            (self._load, record.usable_ns, record.loaded_ns),
        ):
            histogram.labels(**mine).observe((to_ns - from_ns) / NS_PER_S)
        for earlier, later in itertools.pairwise(tokens):
            self._between.labels(**mine).observe((later - earlier) / NS_PER_S)
        if len(tokens) > 1:
            mean_ns = (tokens[-1] - tokens[0]) / (len(tokens) - 1)
            self._per_token.labels(**mine).observe(mean_ns / NS_PER_S)
        self._prompt.labels(**mine).observe(record.prompt_tokens)
        self._answer.labels(**mine).observe(record.completion_tokens)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, (*LABELS, *labels), registry=self._registry)

    def _histogram(self, name: str, what: str, buckets: Iterable[float]) -> Histogram:
        return Histogram(name, what, LABELS, registry=self._registry, buckets=tuple(buckets))


def _one_two_five(most: int) -> list[float]:
    """1, 2, 5, 10, 20 … up to ``most``: vLLM's buckets of lengths."""
    found = [mantissa * 10**power for power in range(10) for mantissa in (1, 2, 5)]
    return [float(value) for value in found if value <= most] or [1.0]
