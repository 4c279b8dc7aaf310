from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from geokv.engine.pool import BlockPool
from geokv.errors import EngineError


def make(blocks: int = 8, layers: int = 3, dtype: torch.dtype = torch.float32) -> BlockPool:
    return BlockPool(layers, blocks, block_tokens=4, kv_heads=2, head_dim=6, dtype=dtype)


def random_payload(pool: BlockPool, blocks: int, layers: int, seed: int) -> torch.Tensor:
    shape = (layers, 2, blocks * pool.block_tokens, pool.kv_heads, pool.head_dim)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(pool.dtype)


@settings(max_examples=40, deadline=None)
@given(
    blocks=st.permutations(range(8)).flatmap(lambda p: st.integers(1, 8).map(lambda n: p[:n])),
    target=st.permutations(range(8)),
    layers=st.sampled_from([slice(None), slice(0, 1), slice(1, 3), slice(2, 3)]),
    seed=st.integers(0, 2**20),
)
def test_scatter_then_gather_is_identity_between_any_blocks(
    blocks: list[int], target: list[int], layers: slice, seed: int
) -> None:
    source, sink = make(), make()
    source.allocate(8)
    sink.allocate(8)
    depth = len(range(3)[layers])
    payload = random_payload(source, len(blocks), depth, seed)
    source.scatter(blocks, payload, layers)
    # The layout is the documented one: token t of the payload is slot t % 4 of block t // 4.
    for index, block in enumerate(blocks):
        assert torch.equal(
            source.tensor[layers, :, block], payload[:, :, index * 4 : index * 4 + 4]
        )
    untouched = [layer for layer in range(3) if layer not in range(3)[layers]]
    assert not source.tensor[untouched].any()

    out = torch.empty_like(payload)
    source.gather(blocks, out, layers)
    sink.scatter(target[: len(blocks)], out, layers)
    back = torch.empty_like(payload)
    sink.gather(target[: len(blocks)], back, layers)
    assert torch.equal(back, payload)


def test_a_part_of_a_larger_buffer_can_be_filled() -> None:
    pool = make()
    blocks = pool.allocate(3)
    payload = random_payload(pool, 3, 3, seed=1)
    pool.scatter(blocks, payload)
    buffer = torch.zeros(3, 2, 20, 2, 6)
    pool.gather(blocks[1:], buffer[:, :, 4:12])
    assert torch.equal(buffer[:, :, 4:12], payload[:, :, 4:])
    assert not buffer[:, :, :4].any()
    assert not buffer[:, :, 12:].any()


def test_copy_on_write_leaves_the_other_owner_alone() -> None:
    pool = make()
    (block,) = pool.allocate(1)
    payload = random_payload(pool, 1, 3, seed=2)
    pool.scatter([block], payload)
    assert pool.writable(block) == block
    pool.retain([block])
    copy = pool.writable(block)
    assert copy != block
    pool.scatter([copy], payload + 1)
    out = torch.empty_like(payload)
    pool.gather([block], out)
    assert torch.equal(out, payload)
    assert (pool.references(block), pool.references(copy)) == (1, 1)


def test_misuse_is_refused_and_changes_nothing() -> None:
    pool = make()
    blocks = pool.allocate(2)
    with pytest.raises(EngineError, match="7 blocks wanted, 6 of 8 free"):
        pool.allocate(7)
    assert pool.free == 6
    with pytest.raises(EngineError, match="free and holds nothing"):
        pool.gather([7], torch.empty(3, 2, 4, 2, 6))
    with pytest.raises(EngineError, match="payload is"):
        pool.gather(blocks, torch.empty(3, 2, 7, 2, 6))
    with pytest.raises(EngineError, match="payload is"):
        pool.scatter(blocks, torch.empty(3, 2, 8, 2, 6, dtype=torch.float64))
    with pytest.raises(EngineError, match="not one of"):
        pool.release([8])
    with pytest.raises(EngineError, match="twice in one scatter"):
        pool.scatter([blocks[0]] * 2, torch.empty(3, 2, 8, 2, 6))
    pool.retain(blocks[:1])
    with pytest.raises(EngineError, match="shared"):
        pool.scatter(blocks, torch.empty(3, 2, 8, 2, 6))
    pool.release([blocks[0], *blocks])
    with pytest.raises(EngineError, match="freed twice"):
        pool.release(blocks[:1])
    with pytest.raises(EngineError, match="cannot be shared"):
        pool.retain(blocks[:1])
    with pytest.raises(EngineError, match="cannot be written"):
        pool.writable(blocks[0])
    pool.check_integrity()
    assert pool.free == 8


def test_integrity_check_sees_a_lost_and_a_doubled_block() -> None:
    pool = make()
    pool.allocate(1)
    pool._references[0] = 0
    with pytest.raises(EngineError, match="block 0"):
        pool.check_integrity()
    pool._free += [0, 0]
    with pytest.raises(EngineError, match="twice"):
        pool.check_integrity()


class PoolMachine(RuleBasedStateMachine):
    """The pool against a dictionary of owners and contents."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(1, 6, 1, 1, 1)
        self.owners: dict[int, int] = {}
        self.content: dict[int, float] = {}
        self.stamp = 0.0

    def fill(self, block: int) -> None:
        self.stamp += 1
        self.pool.scatter([block], torch.full((1, 2, 1, 1, 1), self.stamp))
        self.content[block] = self.stamp

    @rule(count=st.integers(0, 4))
    def allocate(self, count: int) -> None:
        if count > 6 - len(self.owners):
            with pytest.raises(EngineError):
                self.pool.allocate(count)
            return
        for block in self.pool.allocate(count):
            assert block not in self.owners
            self.owners[block] = 1
            self.fill(block)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.owners)))
        self.pool.retain([block])
        self.owners[block] += 1

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.owners)))
        freed = self.pool.release([block])
        self.owners[block] -= 1
        assert freed == (self.owners[block] == 0)
        if self.owners[block] == 0:
            del self.owners[block], self.content[block]

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.owners)))
        if self.owners[block] > 1 and len(self.owners) == 6:
            with pytest.raises(EngineError):
                self.pool.writable(block)
            return
        own = self.pool.writable(block)
        if self.owners[block] > 1:
            assert own not in self.owners
            self.owners[block] -= 1
            self.owners[own] = 1
        else:
            assert own == block
        self.fill(own)

    @invariant()
    def agrees(self) -> None:
        self.pool.check_integrity()
        assert self.pool.free == 6 - len(self.owners)
        for block in range(6):
            assert self.pool.references(block) == self.owners.get(block, 0)
        for block, value in self.content.items():
            assert (self.pool.tensor[:, :, block] == value).all()


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
