"""Record headers that are none of any real chunk, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from geokv.cache import ChunkHeader

DIGEST = st.binary(min_size=16, max_size=16)
U64 = st.integers(0, 2**64 - 1)
HEADERS = st.builds(
    ChunkHeader,
    key=DIGEST,
    parent=DIGEST,
    tenant=st.text(st.characters(codec="utf-8"), min_size=1, max_size=60),
    model=DIGEST,
    layout=DIGEST,
    tokens=st.lists(st.integers(0, 2**32 - 1), max_size=64).map(tuple),
    generation=U64,
    incarnation=U64,
    wire_bytes=U64,
    checksums=st.lists(DIGEST, max_size=5).map(tuple),
    lease_ns=U64,
    lossy=st.booleans(),
    codec=st.sampled_from(["none", "zstd", "fp8", "kivi2", "cachegen"]),
)
