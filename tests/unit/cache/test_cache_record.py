"""Headers: read back exactly, or refused with RecordError and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cache_headers import HEADERS
from cache_sites import content, make_layout, make_refs
from hypothesis import given, settings
from hypothesis import strategies as st

from geokv.cache import ChunkHeader, ChunkRef
from geokv.cache.record import checksums, make_header, parse, verify
from geokv.errors import RecordError

LAYOUT = make_layout()
REF = make_refs(LAYOUT, 2)[1]


def good_header() -> ChunkHeader:
    sums = checksums(LAYOUT, content(REF, LAYOUT))
    return make_header(REF, LAYOUT, sums, generation=3, incarnation=77).stamped(3, 77, 10**9)


@given(HEADERS)
def test_headers_read_back_as_they_were(header: ChunkHeader) -> None:
    assert parse(header.pack()) == header


@given(st.binary(max_size=600))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(RecordError):
        parse(noise)


@pytest.mark.slow
@settings(max_examples=300)
@given(HEADERS, st.data())
def test_damaged_headers_are_refused_or_read_as_what_they_say(
    header: ChunkHeader, data: st.DataObject
) -> None:
    raw = bytearray(header.pack())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        read = parse(bytes(raw))
    except RecordError:
        return
    assert read.pack() == bytes(raw)  # no bit is ignored


@pytest.mark.slow
@settings(max_examples=300)
@given(HEADERS, st.data())
def test_knowing_what_was_asked_for_changes_nothing_that_is_read(
    header: ChunkHeader, data: st.DataObject
) -> None:
    asked = ChunkRef(header.key, header.parent, header.tokens, header.tenant)
    raw = bytearray(header.pack())
    assert parse(raw, asked) == header
    tail = 4 * len(header.tokens) + 4  # where token ids and their number lie
    raw[-data.draw(st.integers(1, tail))] ^= data.draw(st.integers(1, 255))
    results: list[ChunkHeader | str] = []
    for likely in (None, asked):
        try:
            results.append(parse(raw, likely))
        except RecordError as error:
            results.append(error.message)
    assert results[0] == results[1]


@given(HEADERS, st.data())
def test_truncated_or_padded_headers_are_refused(header: ChunkHeader, data: st.DataObject) -> None:
    raw = header.pack()
    with pytest.raises(RecordError):
        parse(raw[: data.draw(st.integers(0, len(raw) - 1))])
    with pytest.raises(RecordError):
        parse(raw + data.draw(st.binary(min_size=1, max_size=9)))


def test_bytes_that_the_length_admits_but_no_field_needs_are_refused() -> None:
    raw = bytearray(good_header().pack() + b"xyz")
    raw[8:12] = len(raw).to_bytes(4, "big")
    with pytest.raises(RecordError, match="3 bytes after the header"):
        parse(bytes(raw))


def test_an_absurd_token_count_allocates_nothing() -> None:
    raw = bytearray(good_header().pack())
    raw[-4 * 32 - 4 : -4 * 32] = b"\xff\xff\xff\xff"
    for asked in (None, REF):
        with pytest.raises(RecordError, match="mid-field"):
            parse(bytes(raw), asked)


def test_token_ids_that_fit_no_header_are_found_in_none() -> None:
    asked = replace(REF, tokens=(-1, 2**32))
    empty = replace(good_header(), tokens=())
    assert parse(empty.pack(), asked).tokens == ()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"tenant": ""}, "1 to 255"),
        ({"tenant": "x" * 256}, "1 to 255"),
        ({"tokens": (2**32,)}, "token id"),
        ({"generation": -1}, "counter"),
        ({"key": b"short"}, "16 bytes"),
        ({"codec": "n\u00f6"}, "ASCII"),
        ({"tokens": (1,) * 200_000}, "more than"),
    ],
)
def test_what_does_not_fit_is_not_packed(change: dict[str, object], text: str) -> None:
    with pytest.raises(RecordError, match=text):
        replace(good_header(), **change).pack()


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({}, None),
        ({"tenant": "other"}, "foreign"),
        ({"model": b"m" * 16}, "mismatch"),
        ({"layout": b"l" * 16}, "mismatch"),
        ({"wire_bytes": 5}, "mismatch"),
        ({"checksums": ()}, "mismatch"),
        ({"lossy": True}, "lossy"),
        ({"codec": "kivi2"}, "mismatch"),
        ({"key": b"k" * 16}, "mismatch"),
        ({"parent": b"p" * 16}, "mismatch"),
        ({"tokens": (1, 2, 3)}, "mismatch"),  # a collision of keys
        ({"incarnation": 76}, "stale"),
    ],
)
def test_every_field_is_checked(change: dict[str, object], cause: str | None) -> None:
    header = replace(good_header(), **change)
    assert verify(header, REF, LAYOUT, incarnation=77) == cause


def test_checksums_cover_every_group_alone() -> None:
    real = bytearray(content(REF, LAYOUT))
    before = checksums(LAYOUT, bytes(real))
    real[-1] ^= 1
    after = checksums(LAYOUT, bytes(real))
    assert before[0] == after[0]
    assert before[1] != after[1]
    longer = make_layout(wire_bytes_per_token=2049)
    assert checksums(longer, content(REF, LAYOUT))[0] != before[0]
