"""What counts of a prefix that came layer group by layer group, when nothing more comes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from geokv.cache.convert import Converter
from geokv.cache.layout import ChunkLayout
from geokv.site.loading import LayerFiller, by_shard, read_payload, write_payload

LAYOUT = ChunkLayout(
    model_fingerprint="m",
    dtype="float32",
    layers=4,
    kv_heads=1,
    head_dim=8,
    block_tokens=16,
    chunk_tokens=32,
    groups=2,
    wire_bytes_per_token=4 * 2 * 8 * 4,
)


class Engine:
    """Notes what is kept; of three chunks."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.compute = SimpleNamespace(copy=self._copy)
        self.pool = SimpleNamespace(scatter=lambda *_: None)
        self.copied: list[int] = []
        self.arrived = 0
        self.copy_engine = asyncio.Semaphore(1000)
        """One for each copy that may end."""

    def expect(self, seq: Any, ends: list[int]) -> Any:
        return SimpleNamespace(tokens=96, complete=False, arrive=self._arrive)

    def _arrive(self) -> None:
        self.arrived += 1

    def retract(self, seq: Any) -> Any:
        return SimpleNamespace(tokens=0, complete=False, arrive=lambda: None)

    def rollback(self, seq: Any, keep: int) -> None:
        self.kept.append(keep)

    async def _copy(self, n_bytes: int, *_: Any) -> None:
        self.copied.append(n_bytes)
        await self.copy_engine.acquire()


def filler(engine: Any, skip_tokens: int = 0) -> LayerFiller:
    """One byte per token and group."""
    return LayerFiller(engine, SimpleNamespace(), LAYOUT, list(range(6)), skip_tokens, 2)  # type: ignore[arg-type]


def piece() -> memoryview:
    return memoryview(bytes(LAYOUT.wire_bytes_per_token * LAYOUT.chunk_tokens // LAYOUT.groups))


@pytest.mark.parametrize(
    ("chunks", "kept"),
    [((), 0), ((3,), 0), ((2,), 0), ((3, 2), 64), ((2, 2), 64), ((1, 0), 0)],
)
async def test_only_a_prefix_with_all_its_layers_counts(chunks: tuple[int, ...], kept: int) -> None:
    engine: Any = Engine()
    layers = filler(engine)
    for group, whole in enumerate(chunks):
        await layers.end_group(group, whole)
    layers.close()
    assert engine.kept == [kept]


async def test_what_came_during_a_copy_goes_with_the_next() -> None:
    engine: Any = Engine()
    engine.copy_engine = asyncio.Semaphore(0)
    layers = filler(engine, skip_tokens=16)
    await layers.take(0, 0, piece())
    await asyncio.sleep(0)
    assert engine.copied == [16]  # at once, and without what the device has
    for index in (1, 2):
        await layers.take(index, 0, piece())
    ended = asyncio.create_task(layers.end_group(0, 3))
    for copies in (1, 2):
        await asyncio.sleep(0)
        assert not ended.done() and engine.arrived == 0
        engine.copy_engine.release()
        await asyncio.sleep(0)
        assert engine.copied == [16, 64][: copies + 1]
    await ended
    assert engine.copied == [16, 64]
    # The next group begins anew.
    engine.copy_engine.release()
    await layers.take(0, 1, piece())
    await layers.end_group(1, 3)
    assert engine.copied == [16, 64, 16]


async def test_a_copy_ends_with_what_it_was_for() -> None:
    engine: Any = Engine()
    engine.copy_engine = asyncio.Semaphore(0)
    layers = filler(engine)
    await layers.take(0, 0, piece())
    await asyncio.sleep(0)
    (copy,) = asyncio.all_tasks() - {asyncio.current_task()}
    layers.close()
    with pytest.raises(asyncio.CancelledError):
        await copy
    assert engine.kept == [0]


def fill(payload: torch.Tensor, kv: torch.Tensor) -> None:
    assert payload.is_contiguous()
    payload.copy_(kv)


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_a_payload_lies_as_its_ranks_say(shards: int) -> None:
    """As the converter between sites of other ranks has it, which knows nothing of this."""
    one = replace(LAYOUT, kv_heads=4, wire_bytes_per_token=4 * LAYOUT.wire_bytes_per_token)
    many = replace(one, shards=shards)
    kv = torch.rand(4, 2, 32, 4, 8)
    plain, memory, converted = (memoryview(bytearray(one.real_bytes)) for _ in range(3))
    write_payload(plain, one, lambda payload: fill(payload, kv))
    write_payload(memory, many, lambda payload: fill(payload, kv))
    Converter(many, one).convert(plain, 0, converted, 0, 32)
    assert memory == converted
    assert (memory == plain) == (shards == 1)
    assert torch.equal(read_payload(memory, many), kv)
    # A group of layers alone, and a part that is changed in place.
    group = memory[: one.real_bytes // 2]
    assert torch.equal(read_payload(group, many, 2), kv[:2])
    by_shard(memory, many)[:, :, :16].neg_()
    assert torch.equal(read_payload(memory, many)[:, :, :16], -kv[:, :, :16])
