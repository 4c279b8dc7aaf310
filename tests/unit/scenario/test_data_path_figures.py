"""Tables of docs/data_path.md are those of the references: a run that moves one moves both."""

from __future__ import annotations

import re

import pytest
from references import CHECKOUT, Row, is_shown, row_of, rows_of

from geokv.measure.break_even import crossing

PAGE = (CHECKOUT / "docs" / "data_path.md").read_text(encoding="utf-8")
SIZES = (4, 16, 64, 256, 1024)
RATES = ("1G", "10G", "100G", "400G")


def table(section: str, begins: str = "") -> list[list[str]]:
    """Cells of the rows below the header of the section's one table, or of the one whose header
    begins so."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    found = [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    ]
    (one,) = [rows for rows in found if rows[0][0].startswith(begins)]
    return one[2:]


def test_full_size() -> None:
    rows = table("Full size")
    assert len(rows) == 4
    for how, fetch, off, ttft, over in rows:
        transfer, km = how.removesuffix(" km").split(", ")
        row = row_of("full_size", transfer=transfer, km=float(km))
        took, predicted = (float(row[f"remote_hit_fetch{end}_ms"]) for end in ("", "_predicted"))
        is_shown(fetch, took)
        is_shown(off, 100 * (took / predicted - 1))
        is_shown(ttft, row["remote_hit_ttft_p50_ms"])
        if transfer == "whole":
            is_shown(over.split()[0], row["remote_hit_ratio_to_bound"])
    recomputed = {round(float(row["recompute_ttft_p50_ms"]), 1) for row in rows_of("full_size")}
    assert recomputed == {304.5}


@pytest.mark.parametrize(
    ("begins", "column"),
    [("goodput", "remote_hit_goodput_gbps"), ("TTFT", "remote_hit_ttft_p50_ms")],
)
def test_granularity(begins: str, column: str) -> None:
    rows = table("Granularity", begins)
    for (_, *cells), transfer in zip(rows, ("serial", "pipelined", "layered"), strict=True):
        for shown, size in zip(cells, SIZES, strict=True):
            settings = {"transfer": transfer, "km": 100.0, "deployment.chunk_tokens": size}
            is_shown(shown, row_of("granularity", **settings)[column])


def test_break_even() -> None:
    """Line rates at which the lines of measured cells cross; balance and peak are no measurement,
    but formulas (``geokv/measure/break_even.py``)."""
    rows = table("Break-even")
    assert len(rows) == 4
    for prefix, *cells, _, _ in rows:
        for shown, km in zip(cells, (0.0, 100.0, 1000.0), strict=True):
            line = rows_of(
                "break_even", **{"workload.prefix_tokens": prefix.replace(",", ""), "km": km}
            )
            rates = [float(row["links.a-b.rate"].removesuffix("G")) for row in line]
            least = crossing(rates, [1 - float(row["gain"]) for row in line])
            if least is None:
                assert shown == f"none up to {rates[-1]:g}"
            else:
                is_shown(shown, least)


def test_tcp() -> None:
    loss = "0"
    for lost, how, *cells in table("TCP"):
        loss = {"": loss, "no loss": "0", "loss 0.1 %": "0.001"}[lost]
        connections, controls = how.replace(" for a second", "").split(", ")
        for control in controls.split(" or "):
            for shown, streams in zip(cells, (1, 4, 16), strict=True):
                is_shown(shown, _tcp(control, streams, loss, connections)["remote_hit_fetch_ms"])
    (said,) = re.findall(r"a warm connection is (.*?) with bbr", PAGE, re.DOTALL)
    for part, control in zip(said.split("with cubic"), ("cubic", "bbr"), strict=True):
        for shown, streams in zip(re.findall(r"\d+\.\d", part), (1, 4, 16), strict=True):
            is_shown(shown, _tcp(control, streams, "0.001", "warm")["remote_hit_goodput_gbps"])


def _tcp(control: str, streams: int, loss: str, connections: str) -> Row:
    settings = {
        "links.a-b.congestion": control,
        "cache.substrate.streams": streams,
        "links.a-b.loss": loss,
        "connections": connections,
    }
    return row_of("tcp", **settings)


def test_tiers() -> None:
    rows = table("Tiers")
    assert [row[0] for row in rows] == [row["device + dram + disk"] for row in rows_of("tiers")]
    for size, own, shared, _ in rows:
        row = row_of("tiers", **{"device + dram + disk": size})
        is_shown(own, row["local_hit_ttft_p50_ms"])
        is_shown(shared, row["remote_hit_ttft_p50_ms"])


def test_codecs() -> None:
    """All but the row of 32 cores, which the page says is no reference's."""
    names = {"as it is": "none", "zstd, one core": "zstd", "fp8": "fp8", "int8": "int8"}
    rows = [row for row in table("Codecs") if row[0] != "zstd, 32 cores"]
    assert [row[0] for row in rows] == list(names)
    for name, share, *cells in rows:
        for shown, rate in zip(cells, RATES, strict=True):
            row, plain = (_codec(codec, rate) for codec in (names[name], "none"))
            took = sum(float(row[f"remote_hit_{span}_ms"]) for span in ("fetch", "completion"))
            is_shown(shown, took)
            is_shown(share, 100 * float(row["remote_hit_bytes"]) / float(plain["remote_hit_bytes"]))


def _codec(codec: str, rate: str) -> Row:
    return row_of("codecs", **{"cache.substrate.codec": codec, "links.a-b.rate": rate})


def test_congestion() -> None:
    """Median and p99, by load; and what was lost to the highest."""
    rows = table("Congestion")
    assert len(rows) == 5
    for how, *cells, lost in rows:
        kind, km = re.findall(r"`([\w-]+)`, (\d+) km", how)[0]
        for shown, share in zip(cells, ("0", "0.5", "0.8", "0.95"), strict=True):
            settings = {"kind": kind, "timeline.load.share": share, "km": float(km)}
            row = row_of("congestion", **settings)
            median, tail = shown.split(", ")
            is_shown(median, row["cached_ttft_p50_ms"])
            is_shown(tail, row["cached_ttft_p99_ms"])
        assert lost == row["load_fetches_lost"]
    low, high = re.findall(r"computing takes (\d+) to (\d+) in the\s+median", PAGE)[0]
    medians = [float(row["cold_ttft_p50_ms"]) for row in rows_of("congestion")]
    is_shown(low, min(medians))
    is_shown(high, max(medians))


def test_failover() -> None:
    rows = table("Failover")
    for cells, row in zip(rows, rows_of("failover", km=50.0), strict=True):
        protection, fetched, first, slowest = cells
        assert row["links.a-b.protection"].startswith(protection.replace(" ", ""))
        assert fetched.rstrip("¹") == f"{row['cut_cached_remote']} of {row['cut_cached_asked']}"
        if first.endswith(" s"):
            is_shown(first, float(row["cut_first_remote_ms"]) / 1e3)
        is_shown(slowest, row["cached_ttft_max_ms"])
