"""The bytes the kernel gets, written out by hand from include/uapi/linux/pkt_sched.h."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geokv.errors import LabError
from geokv.lab.netem import decode, difference, encode
from geokv.lab.settings import U32, FourStateU32, GilbertElliottU32, NetemSettings

u32 = st.integers(0, U32)


def attributes(data):
    found, offset = {}, 24
    while offset < len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        found[kind] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def test_byte_by_byte():
    data = encode(
        NetemSettings(
            delay_ns=500_001,
            jitter_ns=1_280,
            rate_bps=400_000_000_000,
            limit_packets=33_681,
            loss_chain=GilbertElliottU32(p=1, r=2, h=3, k1=4),
            corrupt_u32=5,
            reorder_u32=6,
            reorder_gap=1,
            duplicate_u32=7,
            delay_correlation_u32=8,
            loss_correlation_u32=9,
            duplicate_correlation_u32=10,
            reorder_correlation_u32=11,
            corrupt_correlation_u32=12,
            seed=0x0123456789ABCDEF,
        )
    )
    expected = [
        "841e0000 91830000 00000000 01000000 07000000 14000000",  # ticks of 64 ns; limit; gap
        "0c000a00 21a1070000000000",  # LATENCY64 500001
        "0c000b00 0005000000000000",  # JITTER64 1280
        "10000100 08000000 09000000 0a000000",  # CORR
        "0c000300 06000000 0b000000",  # REORDER
        "0c000400 05000000 0c000000",  # CORRUPT
        "14000600 ffffffff 00000000 00000000 00000000",  # RATE: more than 32 bits
        "0c000800 00743ba40b000000",  # RATE64 50 000 000 000 bytes/s
        "0c000e00 efcdab8967452301",  # PRNG_SEED
        "18000500 14000200 01000000 02000000 03000000 04000000",  # LOSS { GE }
    ]
    assert data.hex() == "".join(expected).replace(" ", "")


def test_a_whole_ns_survives():
    assert decode(encode(NetemSettings(delay_ns=123_457))).delay_ns == 123_457


def test_rate_that_fits_32_bits_goes_into_both_fields():
    found = attributes(encode(NetemSettings(rate_bps=8_000)))
    assert struct.unpack_from("=I", found[6]) == (1000,)
    assert struct.unpack_from("=Q", found[8]) == (1000,)


def test_random_loss_is_in_the_head_and_no_chain_is_sent():
    data = encode(NetemSettings(loss_u32=U32))
    assert struct.unpack_from("=I", data, 8) == (U32,)
    assert 5 not in attributes(data)


def test_rate_of_a_part_of_a_byte_is_refused():
    with pytest.raises(ValueError, match="whole bytes per second"):
        encode(NetemSettings(rate_bps=12))


@pytest.mark.parametrize("field", ["delay_ns", "loss_u32", "seed", "limit_packets"])
def test_values_beyond_the_field_are_refused(field):
    for value in (-1, 2**64):
        with pytest.raises(ValueError, match=f"netem {field}"):
            NetemSettings(**{field: value})


@pytest.mark.slow
@given(
    delay=st.integers(0, 2**40),
    jitter=st.integers(0, 2**31),
    rate=st.integers(0, 2**40),
    chain=st.none()
    | st.builds(GilbertElliottU32, u32, u32, u32, u32)
    | st.builds(FourStateU32, u32, u32, u32, u32, u32),
    shares=st.tuples(u32, u32, u32, u32, u32),
    seed=st.integers(0, 2**64 - 1),
)
def test_decode_inverts_encode(delay, jitter, rate, chain, shares, seed):
    settings = NetemSettings(
        delay_ns=delay,
        jitter_ns=jitter,
        rate_bps=rate * 8,
        limit_packets=shares[0],
        loss_u32=shares[1],
        loss_chain=chain,
        corrupt_u32=shares[2],
        reorder_u32=shares[3],
        duplicate_u32=shares[4],
        seed=seed,
    )
    assert decode(encode(settings)) == settings


def test_difference_names_field_and_both_values():
    asked, found = NetemSettings(delay_ns=500_000), NetemSettings(delay_ns=499_968)
    assert difference(asked, found) == "delay_ns asked 500000, found 499968"
    assert difference(asked, asked) == ""


@pytest.mark.parametrize("cut", [4, 23, 30])
def test_a_cut_answer_is_refused(cut):
    with pytest.raises(LabError):
        decode(encode(NetemSettings(delay_ns=1))[:cut])
