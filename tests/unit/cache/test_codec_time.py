"""What coding costs: exact times of a site's codecs on a clock that only waiting moves."""

from __future__ import annotations

import asyncio

import pytest

from geokv.cache import codec_time
from geokv.cache.codec_cost import ZSTD, CodecCost, codec_costs, on_device
from geokv.cache.codec_time import CodecTime
from geokv.errors import ConfigError
from geokv.units import NS_PER_S

MIB = 2**20
COST = CodecCost(1e9, 2e9)


class Clock:
    """Virtual time: nothing takes any but what is waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000 * NS_PER_S
        self.begun = self.now
        monkeypatch.setattr(codec_time, "now_ns", lambda: self.now)
        monkeypatch.setattr(codec_time, "wait_until_ns", self.wait)

    async def wait(self, end_ns: int) -> None:
        await asyncio.sleep(0)
        self.now = max(self.now, end_ns)

    @property
    def passed(self) -> int:
        return self.now - self.begun


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def new_time(cost: CodecCost = COST) -> CodecTime:
    return CodecTime(dict.fromkeys(("zstd", "fp8", "int8"), cost))


def test_figures() -> None:
    chunk = 32 * MIB
    # 256 tokens of 128 KiB, as they are and divided by S = 4.
    assert ZSTD.encode_ns(chunk) == round(chunk / 0.36e9 * NS_PER_S)
    assert ZSTD.scaled(4).encode_ns(chunk // 4) == ZSTD.encode_ns(chunk)
    assert ZSTD.scaled(4).decode_ns(chunk // 4) == ZSTD.decode_ns(chunk)
    # 3.35 TB/s, of which 2 bytes are read and 1 is written per element of 2.
    assert on_device(3.35e12).encode_ns(chunk) == round(chunk * 1.5 / 3.35e12 * NS_PER_S) == 15_024
    assert codec_costs(3e12) == {"zstd": ZSTD, "fp8": on_device(3e12), "int8": on_device(3e12)}
    with pytest.raises(ConfigError, match=r"codec\.decode_bytes_per_s: must be > 0, got 0"):
        CodecCost(1, 0)
    with pytest.raises(ConfigError, match="codec costs: none of fp8, int8"):
        CodecTime({"zstd": ZSTD})


async def test_a_direction_is_serial_and_the_other_one_goes_on_beside_it(clock: Clock) -> None:
    time = new_time()
    ends: list[tuple[str, int]] = []
    done = [time.encode("zstd", 1_000, 1, lambda: "e") for _ in range(3)]
    done += [time.decode("zstd", 1_000, 1, lambda: "d") for _ in range(2)]
    for one in done:
        one.add_done_callback(lambda one: ends.append((one.result(), clock.passed)))
    await asyncio.gather(*done[:3])
    await asyncio.sleep(0)
    assert [at for what, at in ends if what == "e"] == [1_000, 2_000, 3_000]
    assert time.stats()["encode_busy_ns"] == 3_000 and time.stats()["decode_busy_ns"] == 1_000
    clock.now += NS_PER_S  # who was idle begins at once
    begun = clock.now
    assert await time.decode("zstd", 4_000, 1, lambda: clock.now - begun) == 0
    assert clock.now - begun == 2_000


async def test_decoding_alone_is_exact(clock: Clock) -> None:
    time = new_time()
    ends: list[int] = []
    for _ in range(3):
        done = time.decode("int8", 1_000, 1, lambda: None)
        done.add_done_callback(lambda _: ends.append(clock.passed))
    await done
    await asyncio.sleep(0)
    assert ends == [500, 1_000, 1_500] and time.stats()["decode_late_ns"] == 0


async def test_the_most_urgent_goes_first_but_what_has_begun_goes_on(clock: Clock) -> None:
    time, order = new_time(), []
    first = time.encode("fp8", 1_000, 3, lambda: order.append("begun"))
    await asyncio.sleep(0)
    rest = [
        time.encode("fp8", 1_000, priority, lambda name=name: order.append(name))
        for priority, name in ((3, "background"), (1, "fetch"), (1, "fetch too"))
    ]
    await asyncio.gather(first, *rest)
    assert order == ["begun", "fetch", "fetch too", "background"]
    assert clock.passed == 4_000


async def test_what_is_given_up_before_its_turn_is_not_done_and_not_charged(clock: Clock) -> None:
    time, order = new_time(), []
    first = time.encode("fp8", 1_000, 1, lambda: order.append(1))
    second = time.encode("fp8", 1_000, 1, lambda: order.append(2))
    third = time.encode("fp8", 1_000, 1, lambda: order.append(3))
    await asyncio.sleep(0)
    second.cancel()
    first.cancel()  # its turn has begun: the core is busy with it to its end
    await third
    assert order == [1, 3] and clock.passed == 2_000


async def test_an_error_is_who_asked_s_and_the_next_goes_on(clock: Clock) -> None:
    time = new_time()
    bad = time.encode("fp8", 1_000, 1, lambda: 1 // 0)
    good = time.encode("fp8", 1_000, 1, lambda: 7)
    with pytest.raises(ZeroDivisionError):
        await bad
    assert await good == 7 and clock.passed == 2_000


async def test_work_that_outlasts_its_charge_is_counted(clock: Clock) -> None:
    time = new_time()

    def work() -> None:
        clock.now += 1_700

    await time.encode("fp8", 1_000, 1, work)
    assert clock.passed == 1_700 and time.stats()["encode_late_ns"] == 700


async def test_nothing_is_left_behind(clock: Clock) -> None:
    time = new_time()
    done = [time.encode("fp8", 1_000, 1, lambda: None) for _ in range(2)]
    await asyncio.sleep(0)
    time.close()
    await asyncio.wait(done, timeout=5)
    assert all(one.cancelled() for one in done)
