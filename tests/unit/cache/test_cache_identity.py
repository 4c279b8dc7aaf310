"""Keys and layouts: same everywhere, different for whatever must not be mixed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cache_sites import make_layout
from hypothesis import given
from hypothesis import strategies as st

from geokv.cache import ChunkLayout, block_keys, chunk_keys, chunk_refs, root_key
from geokv.cache.filler import filler, group_filler
from geokv.errors import CacheError, ConfigError

TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=80)


def test_roots_differ_by_model_tenant_and_adapter() -> None:
    roots = {
        root_key("m", b"t"),
        root_key("m2", b"t"),
        root_key("m", b"t2"),
        root_key("m", b"t", "lora"),
        root_key("mt", b""),  # the border between two fields counts
        root_key("m", b"", "t"),
    }
    assert len(roots) == 6
    assert all(len(root) == 16 for root in roots)


@given(TOKENS, st.sampled_from([1, 4, 16]), st.integers(1, 4))
def test_chunk_keys_are_every_nth_block_key(tokens: list[int], block: int, per: int) -> None:
    root = root_key("m", b"t")
    blocks = block_keys(root, tokens, block)
    assert len(blocks) == len(tokens) // block
    assert chunk_keys(root, tokens, block * per, block) == blocks[per - 1 :: per]


@given(TOKENS.filter(lambda t: len(t) >= 8), st.integers(0, 7))
def test_a_changed_token_changes_its_key_and_all_later_ones(tokens: list[int], at: int) -> None:
    root = root_key("m", b"t")
    other = list(tokens)
    other[at] ^= 1
    before = block_keys(root, tokens, 4)
    after = block_keys(root, other, 4)
    same = at // 4
    assert before[:same] == after[:same]
    assert all(x != y for x, y in zip(before[same:], after[same:], strict=True))


@pytest.mark.slow
def test_keys_do_not_depend_on_the_process() -> None:
    code = (
        "from geokv.cache import *; print(block_keys(root_key('m', b't'), range(32), 16)[1].hex())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert seen == {block_keys(root_key("m", b"t"), range(32), 16)[1].hex()}
    assert seen == {"d081890afb6495afb99871a5b8aa5eed"}  # a change here voids every stored key


def test_refs_chain() -> None:
    root = root_key("m", b"t")
    refs = chunk_refs(root, list(range(70)), 32, 16, "acme")
    assert [ref.tokens for ref in refs] == [tuple(range(32)), tuple(range(32, 64))]
    assert [ref.parent for ref in refs] == [root, refs[0].key]


def test_impossible_keys_are_refused() -> None:
    root = root_key("m", b"t")
    with pytest.raises(ConfigError, match="multiple of block_tokens"):
        chunk_keys(root, [1], 20, 16)
    with pytest.raises(ConfigError, match="block_tokens"):
        block_keys(root, [1], 0)
    for token in (-1, 2**32):
        with pytest.raises(CacheError, match="token id"):
            block_keys(root, [token] * 16, 16)


@given(
    layers=st.integers(1, 40),
    groups=st.integers(1, 40),
    extra=st.integers(0, 5000),
    chunk_blocks=st.integers(1, 4),
)
def test_groups_cover_the_chunk_exactly(
    layers: int, groups: int, extra: int, chunk_blocks: int
) -> None:
    fields = {"layers": layers, "groups": groups, "chunk_tokens": 16 * chunk_blocks}
    real_per_token = layers * 2 * 2 * 8 * 4
    if groups > layers and groups * real_per_token > layers * (real_per_token + extra):
        # A group on the wire must hold the real layer it brings.
        with pytest.raises(ConfigError, match="groups"):
            make_layout(**fields, wire_bytes_per_token=real_per_token + extra)
        return
    layout = make_layout(**fields, wire_bytes_per_token=real_per_token + extra)
    assert layout.real_bytes == real_per_token * layout.chunk_tokens
    assert sum(real + fill for real, fill in layout.group_bytes) == layout.wire_bytes
    assert sum(real for real, _ in layout.group_bytes) == layout.real_bytes
    assert min(fill for _, fill in layout.group_bytes) >= 0
    assert [s.stop - s.start for s in layout.group_slices] == [r for r, _ in layout.group_bytes]
    assert layout.group_slices[0].start == 0
    assert layout.group_layers[0][0] == 0 and layout.group_layers[-1][1] == layers
    widths = [stop - start for start, stop in layout.group_layers]
    assert max(widths) - min(widths) <= 1


def test_mismatch_names_each_field_with_both_values() -> None:
    mine, theirs = make_layout(), make_layout(dtype="float16", block_tokens=8)
    assert mine.mismatch(theirs) == [
        "dtype: 'float32' here, 'float16' there",
        "block_tokens: 16 here, 8 there",
        "key_tokens: 16 here, 8 there",
    ]
    assert mine.fingerprint != theirs.fingerprint
    assert mine.mismatch(make_layout()) == []
    assert mine.fingerprint == make_layout().fingerprint


def test_a_byte_scale_too_great_says_which_one_fits() -> None:
    fields = {k: v for k, v in make_layout().as_dict().items() if k != "wire_bytes_per_token"}
    assert (
        ChunkLayout.scaled(target_bytes_per_token=131072, byte_scale=4, **fields).wire_bytes
        == 32768 * 32
    )
    fits = ChunkLayout.scaled(target_bytes_per_token=131072, byte_scale=256, **fields)
    assert fits.wire_bytes == fits.real_bytes
    with pytest.raises(ConfigError, match="byte_scale ≤ 256"):
        ChunkLayout.scaled(target_bytes_per_token=131072, byte_scale=300, **fields)
    with pytest.raises(ConfigError, match="byte_scale ≤ target_bytes_per_token / 512"):
        make_layout(wire_bytes_per_token=100)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("dtype", "float3", "unknown type 'float3'"),
        ("layers", 0, "layout.layers: must be ≥ 1, got 0"),
        ("chunk_tokens", 40, "multiple of block_tokens"),
    ],
)
def test_impossible_layouts_are_refused(field: str, value: object, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_layout(**{field: value})


def test_filler_is_the_same_whatever_length_was_asked_first() -> None:
    short = bytes(filler(100))
    assert bytes(filler(5000))[:100] == short
    assert len(set(bytes(filler(5000)))) == 256
    assert [len(view) for view in group_filler(make_layout())] == [24576, 24576]
