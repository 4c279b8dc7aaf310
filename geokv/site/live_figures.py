"""What ``/metrics`` reads of the worker at the moment somebody asks."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from geokv.site.worker import Worker

LABELS = ("model_name", "engine")
"""vLLM's; a worker is one engine, number 0."""


class LiveFigures(Collector):
    """Gauges and counters of queue, pool and DRAM tier."""

    def __init__(self, worker: Worker, labels: tuple[str, str]) -> None:
        self._worker = worker
        self._values = labels

    def collect(self) -> Iterator[Metric]:
        """One sample of each, as of now."""
        loop, engine = self._worker.loop.stats(), self._worker.engine.stats()
        tier = self._worker.cache.tier.stats()
        yield self._gauge("vllm:num_requests_running", "Answers that have blocks.", loop.running)
        yield self._gauge(
            "vllm:num_requests_waiting",
            "Answers that wait for blocks, or for KV from elsewhere.",
            loop.waiting + loop.loading,
        )
        yield self._gauge(
            "vllm:kv_cache_usage_perc",
            "Share of the blocks that requests hold; 1 is all.",
            engine.blocks_pinned / engine.blocks,
        )
        yield self._total(
            "vllm:num_preemptions", "Answers that lost their blocks to others.", loop.preemptions
        )
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "Settings of the KV pool.",
            labels=(*LABELS, "block_size", "num_gpu_blocks"),
        )
        info.add_metric(
            (*self._values, str(self._worker.engine.block_tokens), str(engine.blocks)), 1
        )
        yield info
        yield self._gauge("geokv_requests_loading", "Of the waiting, KV is coming.", loop.loading)
        yield self._total("geokv_requests_refused", "Requests refused with 429.", loop.refused)
        yield self._total("geokv_steps", "Steps computed.", engine.steps)
        yield self._total(
            "geokv_computed_prompt_tokens", "Prompt tokens computed here.", engine.prefill_tokens
        )
        yield self._total("geokv_evicted_blocks", "Cached blocks given up.", engine.evicted_blocks)
        blocks = GaugeMetricFamily(
            "geokv_device_blocks", "Blocks of the KV pool by state.", labels=(*LABELS, "state")
        )
        for state in ("free", "cached", "pinned"):
            blocks.add_metric((*self._values, state), getattr(engine, f"blocks_{state}"))
        yield blocks
        slots = GaugeMetricFamily(
            "geokv_dram_slots", "Chunks of the DRAM tier by state.", labels=(*LABELS, "state")
        )
        for state in ("free", "cached", "reserved", "leaving"):
            slots.add_metric((*self._values, state), tier[state])
        yield slots
        yield self._total("geokv_dram_evictions", "Chunks given up by it.", tier["evictions"])

    def _gauge(self, name: str, what: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, what, labels=LABELS)
        family.add_metric(self._values, value)
        return family

    def _total(self, name: str, what: str, value: float) -> Metric:
        family = CounterMetricFamily(name, what, labels=LABELS)
        family.add_metric(self._values, value)
        return family
