"""README's figures are those of the reference tables: a run that moves one moves both."""

from __future__ import annotations

import re

import pytest
from references import CHECKOUT, Row, row_of, rows_of

from geokv.measure.break_even import crossing, least_rate_bps
from geokv.measure.energy.account import account
from geokv.measure.energy.constants import Constants, constants
from geokv.measure.energy.grid import ends_of
from geokv.measure.energy.request import Phases
from geokv.measure.energy.saving import saving
from geokv.scenario import load_scenario

README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
WORDS = " ".join(README.split())
"""On one line, so that a sentence can be looked for whole."""


def said(pattern: str) -> list[float]:
    """The numbers in brackets of the one sentence that is like this."""
    (found,) = re.finditer(pattern, WORDS)
    return [float(one.replace(",", "")) for one in found.groups()]


@pytest.mark.parametrize("name", ["distance_ttft", "distance_pagewise"])
def test_the_tables_of_the_readme_are_the_references(name: str) -> None:
    """Every number, to the digits that are shown."""
    part = README[README.index("is `geokv run distance_ttft`") :]
    if name == "distance_pagewise":
        part = part[part.index("`geokv run distance_pagewise` asks") :]
    shown = [line for line in part.splitlines() if line.rstrip().endswith("✓")]
    rows = rows_of(name)
    for line, row in zip(shown, rows, strict=False):
        cells = line.replace("*", " ").split()
        for place, column, factor in _SHOWN_IN_README:
            want, digits = float(row[column]) * factor, len(cells[place].partition(".")[2])
            assert float(cells[place]) == pytest.approx(want, abs=0.5001 * 10**-digits), line
        assert cells[10] == f"{row['wrong']}/{row['compared']}"
    assert len(shown) >= len(rows)


_SHOWN_IN_README = (
    (0, "km", 1),
    (1, "rtt_asked_ms", 1),
    (2, "rtt_measured_ms", 1),
    (3, "recompute_ttft_p50_ms", 1),
    (4, "local_hit_ttft_p50_ms", 1),
    (5, "remote_hit_ttft_p50_ms", 1),
    (6, "gain", 100),
    (7, "gain_change_percent", 1),
    (8, "remote_hit_bound_ms", 1),
    (9, "remote_hit_ratio_to_bound", 1),
    (11, "remote_hit_bytes", 4 / 2**30),
    (12, "recompute_energy_proxy_j", 1),
    (13, "local_hit_energy_proxy_j", 1),
    (14, "remote_hit_energy_proxy_j", 1),
)
"""Place in a line of the table, column of the reference, and what it is multiplied by; bytes on the
wire are a quarter of the deployment's there."""


@pytest.mark.parametrize("name", ["link-cut", "chaos"])
def test_the_drills_that_are_shown(name: str) -> None:
    """Worst TTFT, the fault that took longest to be noticed, and the one felt longest."""
    (line,) = [line for line in README.splitlines() if re.match(rf" +{name}  .* pass ", line)]
    *_, verdict, control, worst, detected, back, _ = re.split(r"  +", line.strip())
    row = row_of(f"drills/{name}", control="no")
    assert (verdict, control) == (row["verdict"], "fails as it must")
    assert row_of(f"drills/{name}", control="yes")["verdict"] == control
    for shown, want in (
        (worst, float(row["ttft_max_ms"])),
        (detected, _largest(row, "_detected_ms")),
        (back, max(_largest(row, "_hit_rate_back_ms"), _largest(row, "_ttft_back_ms"))),
    ):
        number, unit = shown.split()
        value, digits = want / {"ms": 1, "s": 1000}[unit], len(number.partition(".")[2])
        assert float(number) == pytest.approx(value, abs=0.5001 * 10**-digits), line


def _largest(row: Row, ending: str) -> float:
    return max(float(row[name]) for name in row if name.endswith(ending) and row[name])


def test_the_fetch_at_full_size() -> None:
    fetch, off, ratio, layered, whole = said(
        r"over 100 km takes ([\d.]+) ms, .*? to ([\d.]+) %; a remote hit takes ([\d.]+) times its "
        r"lower bound, or ([\d.]+) instead of ([\d.]+) ms"
    )
    one = row_of("full_size", transfer="whole", km=100.0)
    took, expected = (float(one[f"remote_hit_{key}_ms"]) for key in ("fetch", "fetch_predicted"))
    assert fetch == pytest.approx(took, abs=0.00501)
    assert 100 * abs(took / expected - 1) <= off
    assert ratio == pytest.approx(float(one["remote_hit_ratio_to_bound"]), abs=0.000501)
    assert whole == pytest.approx(float(one["remote_hit_ttft_p50_ms"]), abs=0.0501)
    other = row_of("full_size", transfer="layered", km=100.0)
    assert layered == pytest.approx(float(other["remote_hit_ttft_p50_ms"]), abs=0.0501)


def test_the_goodput_by_size_of_a_piece() -> None:
    sizes = (4, 16, 64, 256, 1024)
    for title, transfer in (("one at a time", "serial"), ("sixteen on their way", "pipelined")):
        (found,) = re.findall(rf"^ +{title} +([\d. ]+)$", README, re.MULTILINE)
        for size, shown in zip(sizes, found.split(), strict=True):
            row = _piece(transfer, size)
            assert float(shown) == pytest.approx(float(row["remote_hit_goodput_gbps"]), abs=0.0501)
    layered, pipelined = said(r"in 256-token pieces takes ([\d.]+) ms instead of ([\d.]+)\.")
    for shown_ms, transfer in ((layered, "layered"), (pipelined, "pipelined")):
        took = float(_piece(transfer, 256)["remote_hit_ttft_p50_ms"])
        assert shown_ms == pytest.approx(took, abs=0.0501)


def _piece(transfer: str, tokens: int) -> Row:
    settings = {"transfer": transfer, "km": 100.0, "deployment.chunk_tokens": tokens}
    return row_of("granularity", **settings)


def test_how_many_fetches_are_as_the_closed_form_has_them() -> None:
    rows = rows_of("granularity")
    within = [
        row
        for row in rows
        if abs(float(row["remote_hit_fetch_ms"]) / float(row["remote_hit_fetch_predicted_ms"]) - 1)
        <= 0.1
    ]
    near, count, far = said(r"([\d]+) of its ([\d]+) fetches lie within 10 % .*? all (\d+) from")
    assert (near, count) == (len(within), len(rows))
    distant = [row for row in rows if float(row["rtt_asked_ms"]) >= 0.1]
    assert far == len(distant)
    assert all(row in within for row in distant)


def test_how_far_break_even_is_off_the_balance() -> None:
    """The balance of ``geokv/measure/crossover.py``; the asker's lookup is a round trip more."""
    (limit,) = said(r"`break_even` finds the line rate .*?, within ([\d.]+) % of the balance")
    rows = rows_of("break_even")
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        lines.setdefault((row["km"], row["workload.prefix_tokens"]), []).append(row)
    found = [off for line in lines.values() if (off := _off_the_balance(line)) is not None]
    assert len(found) == 11
    assert max(found) == pytest.approx(limit, abs=0.0501)


def _off_the_balance(line: list[Row]) -> float | None:
    """In per cent; None of a line on which fetching never begins to pay."""
    rates = [float(row["links.a-b.rate"].removesuffix("G")) * 1e9 for row in line]
    first, spans = line[0], ("recompute_prefill", "local_hit_prefill", "remote_hit_load")
    measured = crossing(rates, [1 - float(row["gain"]) for row in line])
    if measured is None:
        return None
    all_ms, question_ms, load_ms = (float(first[f"{span}_ms"]) for span in spans)
    size = int(first["remote_hit_bytes"]) * 256
    rtt_ms = float(first["rtt_asked_ms"])
    # What headers leave of the rate is in the closed form of the fetch: one RTT and its bytes.
    payload_bps = size * 8e3 / (float(first["remote_hit_fetch_predicted_ms"]) - rtt_ms)
    saved_ns = round((all_ms - question_ms - load_ms) * 1e6)
    balance = least_rate_bps(size, saved_ns, round(rtt_ms * 1e6), 2)
    assert balance is not None
    return 100 * abs(measured / (balance * rates[0] / payload_bps) - 1)


def test_what_a_hit_saves_and_which_use_of_the_line_pays() -> None:
    remote, recompute, share = said(
        r"at 100 km and 8,192 tokens (\d+) J instead of (\d+) J, from ([\d.]+) % use of a 100 Gb/s"
    )
    scenario = load_scenario("power")
    numbers, row = constants(scenario.energy, {}), row_of("power", km=100.0)
    ends = ends_of(scenario, numbers)
    computed, fetched = (_phases(row, arm, numbers) for arm in ("recompute", "remote_hit"))
    assert recompute == pytest.approx(account(computed, numbers, ends).energy_j, abs=0.501)
    assert remote == pytest.approx(account(fetched, numbers, ends).energy_j, abs=0.501)
    one = saving(computed, fetched, numbers, 100e9, ends)
    assert one.utilisation is not None
    assert share == pytest.approx(100 * one.utilisation, abs=0.0501)


def _phases(row: Row, arm: str, numbers: Constants) -> Phases:
    """Back from the columns: the table has no time of decoding, but the joules it is part of."""
    ttft_s, prefill_s = (float(row[f"{arm}_{key}_ms"]) / 1e3 for key in ("ttft_mean", "prefill"))
    idle_w, prefill_w = numbers.idle_w.value, numbers.prefill_w.value
    first_j = idle_w * ttft_s + (prefill_w - idle_w) * prefill_s
    decode_s = (float(row[f"{arm}_energy_proxy_gpu_j"]) - first_j) / numbers.decode_w.value
    bits = float(row[f"{arm}_bytes"]) * 16 * 8
    return Phases(ttft_s + decode_s, prefill_s, decode_s, bits, 1, bits > 0)
