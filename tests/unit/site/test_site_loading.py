"""What counts of a prefix that came layer group by layer group, when nothing more comes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from geokv.cache.layout import ChunkLayout
from geokv.site.loading import LayerFiller

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

    def expect(self, seq: Any, ends: list[int]) -> Any:
        return SimpleNamespace(tokens=96, complete=False, arrive=lambda: None)

    def retract(self, seq: Any) -> Any:
        return SimpleNamespace(tokens=0, complete=False, arrive=lambda: None)

    def rollback(self, seq: Any, keep: int) -> None:
        self.kept.append(keep)

    async def _copy(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("chunks", "kept"),
    [((), 0), ((3,), 0), ((2,), 0), ((3, 2), 64), ((2, 2), 64), ((1, 0), 0)],
)
async def test_only_a_prefix_with_all_its_layers_counts(chunks: tuple[int, ...], kept: int) -> None:
    engine: Any = Engine()
    layers = LayerFiller(engine, SimpleNamespace(), LAYOUT, list(range(6)), 0, 1)  # type: ignore[arg-type]
    for group, whole in enumerate(chunks):
        await layers.end_group(group, whole)
    layers.close()
    assert engine.kept == [kept]
