from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from engine_steps import ROOT, Inline, answer, available_blocks, compute, decode, prompt
from hypothesis import given, settings
from hypothesis import strategies as st

from geokv.engine import Engine, LlamaModel, RealCompute, Sequence, Slice, Span, StepLoad
from geokv.engine.tiny import make_tiny, random_model
from geokv.errors import EngineError


def make(model: LlamaModel, blocks: int = 64, block_tokens: int = 4, **settings: Any) -> Engine:
    return Engine(model, blocks, Inline(), block_tokens, **settings)


async def cold(model: LlamaModel, tokens: list[int], count: int = 12) -> list[int]:
    engine = make(model, 128)
    return await answer(engine, engine.open(tokens, ROOT, reuse=False), count)


def oracle_logits(model: LlamaModel, tokens: list[int]) -> torch.Tensor:
    """The model written out naively in float64: full matrices, explicit mask, complex RoPE."""
    c, w = model.config, model.weights
    n = len(tokens)
    x = w.embedding[torch.tensor(tokens)].double()
    inverse = 1.0 / c.rope_theta ** (torch.arange(0, c.head_dim, 2).double() / c.head_dim)
    turn = torch.polar(
        torch.ones(n, c.head_dim // 2).double(), torch.arange(n).double()[:, None] * inverse
    )

    def rotate(y: torch.Tensor) -> torch.Tensor:
        half = c.head_dim // 2
        z = torch.complex(y[..., :half], y[..., half:]) * turn[:, None]
        return torch.cat((z.real, z.imag), -1)

    def norm(y: torch.Tensor) -> torch.Tensor:
        return y / (y.square().mean(-1, keepdim=True) + c.rms_norm_eps).sqrt()

    hidden_from = torch.ones(n, n).triu(1).bool()
    for layer in w.layers:
        y = norm(x)
        q = rotate((y @ layer.query.double().T).view(n, c.heads, c.head_dim))
        k = rotate((y @ layer.key.double().T).view(n, c.kv_heads, c.head_dim))
        v = (y @ layer.value.double().T).view(n, c.kv_heads, c.head_dim)
        k, v = (t.repeat_interleave(c.heads // c.kv_heads, 1) for t in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / c.head_dim**0.5
        mix = torch.softmax(scores.masked_fill(hidden_from, -torch.inf), -1)
        x = x + torch.einsum("hqk,khd->qhd", mix, v).reshape(n, -1) @ layer.out.double().T
        y = norm(x)
        gate = y @ layer.gate.double().T
        x = x + (gate * gate.sigmoid() * (y @ layer.up.double().T)) @ layer.down.double().T
    return norm(x)[-1] @ w.head.double().T


async def test_model_agrees_with_a_naive_float64_implementation(small: LlamaModel) -> None:
    tokens = prompt(50)
    engine = make(small)
    logits = await compute(engine, engine.open(tokens, ROOT), chunk=16)
    assert (logits.double() - oracle_logits(small, tokens)).abs().max() < 1e-4


async def test_cold_device_hit_and_imported_kv_answer_alike(tiny: LlamaModel) -> None:
    tokens = prompt(300, vocab=256)
    first = make(tiny, 60, block_tokens=16)
    seq = first.open(tokens, ROOT)
    assert seq.cached_tokens == 0
    expected = await answer(first, seq)
    assert len(set(expected)) > 6
    first.close(seq)

    hit = first.open(tokens, ROOT)
    assert hit.cached_tokens == 288
    assert first.compute.loads[0] == StepLoad(((300, 0),), (), 1)
    assert await answer(first, hit) == expected
    assert StepLoad(((12, 288),), (), 1) in first.compute.loads

    payload = torch.empty(2, 2, 288, 2, 32)
    first.pool.gather(hit.blocks[:18], payload)
    second = make(tiny, 60, block_tokens=16)
    hold = second.open(prompt(100, seed=1, vocab=256), ROOT)
    second.reserve(hold, 64)
    remote = second.open(tokens, ROOT)
    for part in (160, 128):
        start = remote.computed_tokens
        blocks = second.reserve(remote, part)
        there = hit.blocks[start // 16 : (start + part) // 16]
        assert all(a != b for a, b in zip(blocks, there, strict=True))
        second.pool.scatter(blocks, payload[:, :, start : start + part])
        second.commit(remote, part)
    assert remote.cached_tokens == 288
    assert await answer(second, remote) == expected
    second.rollback(hold)
    for s in (hold, remote):
        second.close(s)
    second.check_integrity()


async def test_one_damaged_cached_block_is_visible(tiny: LlamaModel) -> None:
    tokens = prompt(2000, vocab=256)
    engine = make(tiny, 140, block_tokens=16)
    seq = engine.open(tokens, ROOT)
    clean = await compute(engine, seq)
    expected = await answer(engine, seq, 32, logits=clean)
    engine.close(seq)
    changed = 0
    for position in (0, 40, 90, 120):
        hit = engine.open(tokens, ROOT)
        block = hit.blocks[position]
        saved = engine.pool.tensor[:, :, block].clone()
        engine.pool.tensor[:, :, block] = engine.pool.tensor[:, :, hit.blocks[position + 1]]
        damaged = await compute(engine, hit)
        assert (damaged - clean).abs().max() > 0.01
        changed += await answer(engine, hit, 32, logits=damaged) != expected
        engine.close(hit, keep=False)
        engine.pool.tensor[:, :, block] = saved
    assert changed >= 2
    intact = engine.open(tokens, ROOT)
    assert await answer(engine, intact, 32) == expected


@settings(max_examples=15, deadline=None)
@given(
    length=st.integers(2, 90),
    chunk=st.integers(1, 95),
    block=st.sampled_from([1, 3, 16]),
    seed=st.integers(0, 99),
)
async def test_chunking_and_block_size_change_no_token(
    small: LlamaModel, length: int, chunk: int, block: int, seed: int
) -> None:
    tokens = prompt(length, seed)
    reference = make(small)
    logits = await compute(reference, reference.open(tokens, ROOT))
    engine = make(small, 200, block)
    seq = engine.open(tokens, ROOT)
    assert (await compute(engine, seq, chunk) - logits).abs().max() < 1e-4
    again = engine.open(tokens, ROOT, reuse=False)
    assert await answer(engine, again, 6, chunk) == await cold(small, tokens, 6)


async def test_decoding_equals_prefilling_the_same_tokens(small: LlamaModel) -> None:
    tokens = prompt(40)
    engine = make(small)
    seq = engine.open(tokens[:20], ROOT)
    await compute(engine, seq)
    for token in tokens[20:]:
        logits = await decode(engine, seq, token)
    again = engine.open(tokens, ROOT, reuse=False)
    assert (await compute(engine, again) - logits).abs().max() < 1e-4
    assert seq.tokens == tokens


def test_a_batch_of_spans_equals_each_alone(small: LlamaModel) -> None:
    prompts = [prompt(9, 1), prompt(23, 2), prompt(1, 3)]
    pool = small.new_pool(32, 4)
    tables = [pool.allocate(8) for _ in prompts]
    alone = [small.forward([Span(p, 0, t)], pool)[0] for p, t in zip(prompts, tables, strict=True)]
    mixed = [Span(prompts[0][5:], 5, tables[0]), Span(prompts[1], 0, tables[1])]
    mixed.append(Span(prompts[2], 0, tables[2]))
    together = small.forward(mixed, pool)
    assert (together - torch.stack(alone)).abs().max() < 1e-4


def test_kv_may_arrive_layer_by_layer_while_the_model_walks(small: LlamaModel) -> None:
    tokens = prompt(40)
    source, sink = small.new_pool(10, 4), small.new_pool(10, 4)
    expected = small.forward([Span(tokens, 0, source.allocate(10))], source)
    payload = torch.empty(3, 2, 32, 2, 8)
    source.gather(list(range(8)), payload)
    table = sink.allocate(10)
    walk = small.walk([Span(tokens[32:], 32, table)], sink)
    with pytest.raises(StopIteration) as end:
        while True:
            layer = next(walk)
            sink.scatter(table[:8], payload[layer : layer + 1], slice(layer, layer + 1))
    assert (end.value.value - expected).abs().max() < 1e-4


async def test_namespaces_share_nothing(small: LlamaModel) -> None:
    engine = make(small)
    seq = engine.open(prompt(30), b"a")
    await compute(engine, seq)
    engine.close(seq)
    assert engine.lookup(prompt(30), b"a") == 28
    assert engine.lookup(prompt(30), b"b") == 0
    assert engine.open(prompt(30), b"b").cached_tokens == 0
    assert engine.open(prompt(30), b"a", reuse=False).cached_tokens == 0
    # A prompt that is cached as a whole still has a token to compute.
    assert engine.open(prompt(28), b"a").cached_tokens == 24


async def test_pressure_evicts_oldest_unlocked_and_says_when_there_is_no_room(
    small: LlamaModel,
) -> None:
    events: list[tuple[int, str]] = []
    engine = make(small, 11, on_evict=lambda node, cause: events.append((node.depth, cause)))
    old = engine.open(prompt(16, 1), ROOT)
    await compute(engine, old)
    engine.close(old)
    using = engine.open(prompt(16, 2), ROOT)
    await compute(engine, using)
    more = engine.open(prompt(20, 3), ROOT)
    await compute(engine, more)
    assert events == [(3, "pressure"), (2, "pressure")]
    before = engine.stats()
    big = engine.open(prompt(40, 4), ROOT)
    with pytest.raises(EngineError, match="10 blocks wanted, 0 free and 2 evictable of 11"):
        await compute(engine, big)
    # Nothing was evicted for a request that could not be met.
    assert engine.stats().blocks_cached == before.blocks_cached == 2
    for seq in (big, using, more):
        engine.close(seq)
    engine.check_integrity()
    assert engine.flush() == 11
    assert engine.stats().blocks_free == 11


async def test_failed_fetch_is_rolled_back_and_recomputed(small: LlamaModel) -> None:
    tokens = prompt(40)
    engine = make(small, 13)
    seq = engine.open(tokens, ROOT)
    garbage = torch.full((3, 2, 16, 2, 8), 7.0)
    engine.pool.scatter(engine.reserve(seq, 16), garbage)
    with pytest.raises(EngineError, match="16 reserved tokens"):
        await compute(engine, seq)
    engine.rollback(seq)
    assert seq.computed_tokens == 0
    assert await answer(engine, seq) == await cold(small, tokens)
    engine.close(seq)
    engine.rollback(seq)
    engine.check_integrity()


async def test_partly_committed_fetch_keeps_what_arrived(small: LlamaModel) -> None:
    tokens = prompt(40)
    source = make(small)
    seq = source.open(tokens, ROOT)
    await compute(source, seq)
    payload = torch.empty(3, 2, 32, 2, 8)
    source.pool.gather(seq.blocks[:8], payload)
    engine = make(small)
    part = engine.open(tokens, ROOT)
    engine.pool.scatter(engine.reserve(part, 32), payload)
    engine.commit(part, 20)
    engine.rollback(part)
    assert part.cached_tokens == 20
    assert await answer(engine, part) == await cold(small, tokens)


def test_impossible_reservations_are_refused(small: LlamaModel) -> None:
    engine = make(small, 8)
    other = engine.open(prompt(16, 1), ROOT)
    engine.make_room(other, 16)
    seq = engine.open(prompt(24), ROOT)
    for tokens in (0, -4, 6):
        with pytest.raises(EngineError, match="whole blocks"):
            engine.reserve(seq, tokens)
    with pytest.raises(EngineError, match="leave nothing"):
        engine.reserve(seq, 24)
    with pytest.raises(EngineError, match="no room"):
        engine.reserve(seq, 20)
    engine.reserve(seq, 8)
    for tokens in (12, -4, 3):
        with pytest.raises(EngineError, match="cannot be committed"):
            engine.commit(seq, tokens)
    engine.close(seq)
    engine.close(seq)
    with pytest.raises(EngineError, match="closed"):
        engine.reserve(seq, 4)
    # Reserved content was never committed, so none of it may be cached.
    assert engine.stats().blocks_free == 4
    engine.close(other)
    engine.check_integrity()


async def test_bad_prompts_and_wrong_order_are_refused(small: LlamaModel) -> None:
    engine = make(small, 128)
    for tokens, words in (([], "no tokens"), ([0] * 256, "256 tokens"), ([64], "0 … 63")):
        with pytest.raises(EngineError, match=words):
            engine.open(tokens, ROOT)
    seq = engine.open(prompt(9), ROOT)
    for tokens in (0, 10):
        with pytest.raises(EngineError, match="cannot be computed: 9 of 9 are left"):
            await engine.step([Slice(seq, tokens)])
    with pytest.raises(EngineError, match="twice"):
        await engine.step([Slice(seq, 3), Slice(seq, 3)])
    await compute(engine, seq)
    with pytest.raises(EngineError, match="0 of 9 are left"):
        await engine.step([Slice(seq, 1)])
    with pytest.raises(EngineError, match="token ids"):
        engine.append(seq, 64)
    assert len(seq.tokens) == 9
    await decode(engine, seq, 1)


async def test_a_prompt_longer_than_the_pool_says_so(small: LlamaModel) -> None:
    engine = make(small, 8)
    with pytest.raises(EngineError, match="pool of 8 blocks takes 31 and an answer"):
        engine.open(prompt(32), ROOT)
    seq = engine.open(prompt(31), ROOT)
    await compute(engine, seq)
    await decode(engine, seq, 1)
    with pytest.raises(EngineError, match="reached its 32 tokens"):
        engine.append(seq, 1)


async def test_a_preempted_sequence_goes_on_from_what_is_still_cached(small: LlamaModel) -> None:
    tokens = prompt(30)
    engine = make(small, 20)
    seq = engine.open(tokens, ROOT)
    first = [int((await compute(engine, seq)).argmax())]
    first.append(int((await decode(engine, seq, first[0])).argmax()))
    engine.preempt(seq)
    assert (engine.stats().blocks_pinned, engine.stats().blocks_cached) == (0, 7)
    engine.check_integrity()
    # Somebody takes most of the room, so that only the front of it survives.
    other = engine.open(prompt(64, 1), ROOT)
    engine.make_room(other, 64)
    engine.close(other)
    engine.resume(seq)
    assert seq.computed_tokens == 16
    with pytest.raises(EngineError, match="not pre-empted"):
        engine.resume(seq)
    engine.append(seq, first[1])
    rest = [int((await compute(engine, seq)).argmax())]
    while len(first + rest) < 12:
        rest.append(int((await decode(engine, seq, rest[-1])).argmax()))
    assert first + rest == await cold(small, tokens)
    engine.close(seq)
    engine.check_integrity()


async def test_published_blocks_are_shared_locked_and_given_back(small: LlamaModel) -> None:
    engine = make(small, 30)
    seq = engine.open(prompt(30), ROOT)
    engine.publish(seq)
    await compute(engine, seq)
    engine.publish(seq)
    engine.publish(seq)
    other = engine.open(prompt(30), ROOT)
    assert other.blocks == seq.blocks[:7]
    # A copy computed at the same time stays private: the tree keeps what it has.
    twin = engine.open(prompt(30), ROOT, reuse=False)
    await compute(engine, twin)
    engine.publish(twin)
    assert not set(twin.blocks) & set(seq.blocks)
    engine.check_integrity()
    assert engine.flush() == 0, "what is in use cannot be dropped"
    for one in (seq, other, twin):
        engine.close(one)
        engine.check_integrity()
    assert engine.flush() == 7


async def test_waste_is_less_than_one_block_per_sequence(small: LlamaModel) -> None:
    engine = make(small, 60, 16)
    seqs = [engine.open(prompt(length), ROOT, reuse=False) for length in (1, 15, 16, 17, 100)]
    for seq in seqs:
        engine.make_room(seq, len(seq.tokens))
        assert 0 <= len(seq.blocks) * 16 - len(seq.tokens) <= 15
    # Fragmentation is zero by construction: any free blocks make a sequence.
    for seq in seqs[::2]:
        engine.close(seq)
    left = engine.stats().blocks_free
    rest = engine.open(prompt(200), ROOT, reuse=False)
    assert left == 57
    engine.make_room(rest, 200)
    assert len(rest.blocks) == 13


async def test_what_a_fork_shares_is_not_evicted_when_the_first_is_closed(
    small: LlamaModel,
) -> None:
    engine = make(small, 16)
    seq = engine.open(prompt(18), ROOT)
    await compute(engine, seq)
    engine.publish(seq)
    twin = engine.fork(seq)
    engine.close(seq)
    assert available_blocks(engine) == 16 - len(twin.blocks)
    engine.close(twin)
    assert available_blocks(engine) == 16
    engine.check_integrity()


async def test_forks_diverge_without_touching_each_other(small: LlamaModel) -> None:
    tokens = prompt(18)
    engine = make(small, 64)
    seq = engine.open(tokens, ROOT)
    await compute(engine, seq)
    twin = engine.fork(seq)
    assert twin.blocks == seq.blocks
    for a, b in zip(prompt(6, 5), prompt(6, 6), strict=True):
        left, right = await decode(engine, seq, a), await decode(engine, twin, b)
    assert seq.blocks[:4] == twin.blocks[:4]
    assert seq.blocks[4] != twin.blocks[4]
    engine.check_integrity()
    for own, logits in ((seq, left), (twin, right)):
        check = engine.open(own.tokens, ROOT, reuse=False)
        assert (await compute(engine, check) - logits).abs().max() < 1e-4
        engine.close(check)
    for s in (seq, twin):
        engine.close(s)
    engine.check_integrity()


async def test_cancelled_work_never_writes_into_freed_blocks(tiny: LlamaModel) -> None:
    engine = Engine(tiny, 140, RealCompute(), block_tokens=16)
    seq = engine.open(prompt(2000, vocab=256), ROOT)
    task = asyncio.create_task(compute(engine, seq))
    await asyncio.sleep(0.02)
    assert seq.busy
    engine.close(seq)
    assert not seq.closed
    with pytest.raises(EngineError, match="closed"):
        engine.append(seq, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seq.closed
    # Tokens of a cancelled prefill were never counted, so nothing is cached.
    assert engine.stats().blocks_free == 140
    engine.check_integrity()
    await engine.compute.aclose()


async def test_errors_inside_the_model_leave_a_sequence_that_closes(small: LlamaModel) -> None:
    engine = make(small)
    seq = engine.open(prompt(9), ROOT)
    seq.tokens[3] = 1000
    with pytest.raises(EngineError, match="token ids"):
        await compute(engine, seq)
    engine.close(seq)
    engine.check_integrity()
    assert engine.stats().blocks_free == 64


async def test_content_in_doubt_is_not_kept(small: LlamaModel) -> None:
    engine = make(small)
    seq = engine.open(prompt(20), ROOT)
    await compute(engine, seq)
    engine.close(seq, keep=False)
    assert engine.lookup(prompt(20), ROOT) == 0
    assert engine.stats().blocks_free == 64


async def test_integrity_check_sees_a_leaked_reference(small: LlamaModel) -> None:
    engine = make(small)
    seq = engine.open(prompt(9), ROOT)
    await compute(engine, seq)
    engine.pool.retain(seq.blocks[:1])
    with pytest.raises(EngineError, match="2 references"):
        engine.check_integrity()


@settings(max_examples=25, deadline=None)
@given(data=st.data())
async def test_any_order_of_operations_keeps_every_block_accounted_for(
    small: LlamaModel, data: st.DataObject
) -> None:
    """Random sequences over few prompts in a pool that is too small; answers stay right."""
    engine = make(small, 20)
    expected = {seed: await cold(small, prompt(20, seed)[: 13 + seed], 2) for seed in range(4)}
    seqs: list[tuple[int, Sequence]] = []
    ran: set[Sequence] = set()
    for _ in range(data.draw(st.integers(5, 25))):
        action = data.draw(st.sampled_from(["open", "run", "reserve", "close", "flush"]))
        if action == "open":
            seed = data.draw(st.integers(0, 3))
            seqs.append((seed, engine.open(prompt(20, seed)[: 13 + seed], ROOT)))
        elif action == "flush":
            engine.flush()
        elif seqs:
            index = data.draw(st.integers(0, len(seqs) - 1))
            seed, seq = seqs[index]
            try:
                if action == "run" and seq not in ran:
                    engine.rollback(seq)
                    ran.add(seq)
                    assert await answer(engine, seq, 2) == expected[seed]
                elif action == "reserve" and seq not in ran:
                    engine.reserve(seq, 4)
            except EngineError as error:
                assert "no room" in str(error) or "leave nothing" in str(error)
            if action == "close":
                engine.close(seqs.pop(index)[1])
        engine.check_integrity()
    for _, seq in seqs:
        engine.close(seq)
    engine.flush()
    engine.check_integrity()
    assert engine.stats().blocks_free == 20


def test_fingerprints_tell_models_apart(small: LlamaModel, tiny: LlamaModel) -> None:
    again = random_model(small.config, seed=3)
    assert again.fingerprint == small.fingerprint
    half = random_model(small.config, seed=3, dtype=torch.bfloat16)
    assert half.fingerprint == small.fingerprint
    others = {
        tiny.fingerprint,
        make_tiny(seed=1).fingerprint,
        random_model(small.config, seed=4).fingerprint,
    }
    assert len(others | {small.fingerprint}) == 4


async def test_half_precision_runs_and_stays_close(small: LlamaModel) -> None:
    half = random_model(small.config, seed=3, dtype=torch.bfloat16)
    engine, reference = make(half), make(small)
    low = await compute(engine, engine.open(prompt(20), ROOT))
    high = await compute(reference, reference.open(prompt(20), ROOT))
    assert low.dtype == torch.float32
    assert torch.corrcoef(torch.stack((low, high)))[0, 1] > 0.99
