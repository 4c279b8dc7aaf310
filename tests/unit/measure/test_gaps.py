"""Each gap on a history whose answer is known beforehand."""

from __future__ import annotations

import random
from collections.abc import Hashable

import pytest
from handwritten_gaps import asks, came, served, view
from histories import ev, lost, serve, store

from geokv.cache.substrate.tcp.wire import HEAD_BYTES, MAC_BYTES
from geokv.measure.gaps import access, attribution, completion, metadata, reuse, slack, trace
from geokv.measure.gaps.distance import reuse_distances
from geokv.measure.gaps.numbers import spread


def test_percentiles_that_too_few_samples_carry_are_refused() -> None:
    few, enough = spread(list(range(1, 100))), spread(list(range(1, 101)))
    assert (few["p50"], few["p95"], few["p99"], few["max"]) == (50, 95, None, 99)
    assert few["too_small"] == "n too small: p99 needs 100, n = 99"
    assert enough["p99"] == 99 and "too_small" not in enough
    none = spread([])
    assert none["n"] == 0 and none["p50"] is None and none["mean"] is None


# -- MG1: remote access pattern ----------------------------------------------------


def test_what_is_read_remotely_is_told_by_count_bytes_runs_and_share() -> None:
    rows = [
        served("r1", 0, chunks_remote=4, **asks("p", "q", "r", "s", "t", rest=128)),
        served("r2", 100, chunks_remote=1, **asks("p", rest=32)),
        served("r3", 200, **asks("z")),
    ]
    events = [
        came(10, "r1", 0, "p"),
        came(11, "r1", 1, "q"),
        came(12, "r1", 2, "r", source="c"),
        {**lost(13, "timeout"), "request_id": "r1", "index": 3},
        came(14, "r1", 4, "t", source="c", parts=4),
        came(110, "r2", 0, "p"),
    ]
    (row,) = access.rows(view(rows, *events))
    assert (row["requests"], row["requests_with_remote"], row["chunks_read"]) == (3, 2, 5)
    assert row["chunks_lost"] == {"timeout": 1}
    assert row["chunks_per_request"] == round(5 / 3, 3)
    # Eight answers on the wire, one of five chunks in four parts, over 300 ms.
    assert row["reads_per_chunk"] == 1.6
    assert row["reads_per_s"] == round(8 / 0.3, 3)
    # Four of 1,000 bytes, and four of 250.
    assert row["bytes_per_read"]["n"] == 8 and row["bytes_per_read"]["mean"] == 625
    assert (row["bytes_per_read"]["p50"], row["bytes_per_read"]["max"]) == (250, 1000)
    assert row["bytes"] == 5000
    assert row["bytes_stands_for"] == 4 * 5000
    # From a: chunks 0 and 1; from c: 2, then 4 behind a gap; of the other request one.
    assert row["run_chunks"]["n"] == 4 and row["run_chunks"]["max"] == 2
    assert row["run_chunks"]["mean"] == 1.25
    assert row["remote_share"] == round(5 * 256 / (5 * 256 + 128 + 256 + 32 + 256), 4)
    # Chunk p was read before by the same site.
    assert row["read_before"] == 0.2
    assert row["sources"] == {"a": 3, "c": 2}


# -- MG2: metadata -----------------------------------------------------------------


def test_lookups_are_a_share_of_the_ttft_and_may_name_a_place_where_nothing_is() -> None:
    rows = [
        served("r1", lookup=1, fetch=4, prefill=5),
        served("r2", lookup=3, fetch=2, prefill=5),
    ]
    events = [
        came(10, "r1", 0, "p"),
        came(11, "r1", 1, "q"),
        {**lost(12, "absent"), "request_id": "r2", "index": 0},
        {**lost(13, "unreachable"), "request_id": "r2", "index": 1},
    ]
    (row,) = metadata.rows(view(rows, *events))
    assert row["lookup_ms"]["mean"] == 2.0 and row["lookup_ms"]["p50"] == 1.0
    assert row["lookup_share"] == 0.2
    assert (row["named"], row["wrong_location"], row["wrong_location_share"]) == (4, 1, 0.25)


def test_bytes_about_kv_beside_bytes_of_kv() -> None:
    events = [
        came(10, "r1", 0, "p"),
        came(11, "r1", 1, "q"),
        serve(9, key="p", sent_bytes=1100),
        serve(10, key="q", sent_bytes=1100),
        serve(12, key="r", sent_bytes=3, cause="absent"),
    ]
    traffic = {
        "b": {
            "locate": {"calls": 2, "sent_bytes": 60, "received_bytes": 40},
            "publish": {"calls": 1, "sent_bytes": 30, "received_bytes": 10},
        },
        "c": {"locate": {"calls": 1, "sent_bytes": 40, "received_bytes": 20}},
    }
    found = metadata.cell(view([], *events, traffic=traffic))["messages"]
    assert found["by_operation"]["locate"] == {
        "calls": 3, "sent_bytes": 100, "received_bytes": 60
    }  # fmt: skip
    assert (found["directory_bytes"], found["header_bytes"], found["kv_bytes"]) == (200, 200, 2000)
    # Four calls, each with a frame around what is asked and one around the answer.
    assert metadata.FRAME_BYTES == HEAD_BYTES + MAC_BYTES
    assert found["frame_bytes"] == 4 * 2 * 36
    assert found["metadata_per_kv_byte"] == round((200 + 288 + 200) / 2000, 6)
    # S = 4 divides the KV and not what is said of it.
    assert found["kv_bytes_stands_for"] == 8000
    assert found["metadata_per_kv_byte_stands_for"] == round(688 / 8000, 9)
    lost_one = metadata.cell(
        view([], serve(8, key="p"), *events, serve(13, key="s"), traffic=traffic)
    )
    assert lost_one["messages"]["header_bytes"] == 200, "what never came whole is not counted"


def test_the_directory_is_behind_until_it_is_told() -> None:
    events = [
        store(10, "a", "k"),
        ev(14, "publish", "a", key="k", seq=1),
        ev(20, "demote", "a", key="k", tier="disk", place=0, cause=""),
        ev(21, "evict", "a", key="k", tier="dram", place=0),  # still on the disk: not gone
        ev(30, "evict", "a", key="k", tier="disk", place=0),
        ev(37, "withdraw", "a", key="k", seq=2),
        store(40, "a", "k"),
        ev(41, "evict", "a", key="k", tier="dram", place=0),  # gone before it was told of
        store(50, "a", "m"),
        ev(51, "publish", "a", key="m", seq=3),
        ev(60, "drop", "a", key="m", tier="dram", place=0),
        store(62, "a", "m"),  # true again before anybody was told otherwise
        ev(70, "publish", "a", key="m", seq=4),
    ]
    row = metadata.cell(view([], *events))
    assert row["late_news_ms"]["n"] == 2
    assert row["late_news_ms"]["max"] == 4.0 and row["late_news_ms"]["mean"] == 2.5
    assert row["wrong_for_ms"]["n"] == 1 and row["wrong_for_ms"]["max"] == 7.0
    assert row["messages"] is None


# -- MG3: completion ---------------------------------------------------------------


def test_completion_is_told_per_request_and_per_chunk() -> None:
    rows = [
        served("r1", fetch=3, completion=1, prefill=6, chunks_remote=2),
        served("r2", prefill=10),
    ]
    events = [came(10, "r1", 0, "p"), came(11, "r1", 1, "q", parts=2)]
    (row,) = completion.rows(view(rows, *events))
    assert row["requests"] == 1
    assert row["completion_us"]["p50"] == 1000.0 and row["completion_share"] == 0.1
    assert row["completions_per_request"] == 3.0
    assert row["verified_us"]["mean"] == 2.0 and row["readable_us"]["mean"] == 5.0
    assert completion.rows(view(rows[1:], *events)) == []


# -- MG4: reuse distance and residency ---------------------------------------------


def test_reuse_distance_counts_different_things_in_between() -> None:
    assert reuse_distances("abcabba") == [None, None, None, 2, 2, 0, 1]


def test_reuse_distance_is_that_of_an_lru_stack() -> None:
    dice = random.Random(7)
    touched: list[Hashable] = [dice.randrange(40) for _ in range(600)]
    stack: list[Hashable] = []
    expected: list[int | None] = []
    for what in touched:
        expected.append(stack.index(what) if what in stack else None)
        if what in stack:
            stack.remove(what)
        stack.insert(0, what)
    assert reuse_distances(touched) == expected


def test_chunks_are_reused_per_tenant_and_category_here_and_anywhere() -> None:
    rows = [
        served("p", 0, site="a", group="prepare", category="prepare", counted=False, **asks("x")),
        served("r1", 1, **asks("x", "y")),
        served("r2", 2, tenant="t1", **asks("x")),
        served("r3", 3, category="cold", **asks("z")),
        served("r4", 4, **asks("x", "y", rest=32)),
    ]
    (row,) = reuse.rows(view(rows), 1000)
    assert row["chunk_bytes_stands_for"] == 256_000
    by = {(one["tenant"], one["category"]): one for one in row["by"]}
    usual = by["t0", "question"]
    assert usual["chunks"] == 4
    # At b: x y | x of t1 | z | x y; so two others and z lie between, three in all.
    assert usual["here"]["reused_share"] == 0.5 and usual["here"]["distance"]["p50"] == 3
    # For all sites x was touched once more, where it was prepared.
    assert usual["anywhere"]["reused_share"] == 0.75
    assert usual["anywhere"]["distance"]["n"] == 3
    assert by["t1", "question"]["here"] == {
        "reused_share": 0.0,
        "distance": spread([]),
    }, "another tenant's chunk is another chunk"
    assert by["t0", "cold"]["chunks"] == 1
    assert row["lru"]["chunks"] == [1, 2, 4]
    assert row["lru"]["here"] == [0.0, 0.0, round(2 / 6, 4)]
    assert row["lru"]["anywhere"] == [round(1 / 6, 4), round(1 / 6, 4), 0.5]


def test_a_stay_lasts_until_it_is_ended_and_belongs_to_who_brought_it() -> None:
    rows = [served("r1", 0), served("r2", 5, category="cold")]
    events = [
        {**store(10, "a", "k", tenant="t0"), "request_id": "r2"},
        came(20, "r1", 0, "k"),
        ev(50, "evict", "b", key="k", tier="dram", place=0),
        ev(55, "pushed", "c", key="k", peer="a", cause="", place=0),
        ev(70, "drop", "c", key="k", tier="dram", place=0),
    ]
    found = {
        (one["site"], one["category"]): one for one in reuse.cell(view(rows, *events))["residency"]
    }
    assert set(found) == {("a", "cold"), ("b", "question"), ("c", "cold")}
    assert found["a", "cold"]["open"] == 1 and found["a", "cold"]["stay_ms"]["n"] == 0
    here = found["b", "question"]
    assert (here["tenant"], here["tier"], here["evicted"]) == ("t0", "dram", 1)
    assert here["stay_ms"]["p50"] == 30.0
    pushed = found["c", "cold"]
    assert pushed["dropped"] == 1 and pushed["stay_ms"]["p50"] == 15.0
    assert pushed["tenant"] == "t0", "as of the store it descends from"


# -- MG5: prefetch slack -----------------------------------------------------------


def test_slack_runs_from_what_made_the_need_known_to_when_the_engine_was_ready() -> None:
    rows = [
        served("t1", 0, session="s", prefill=10),
        served("t2", 150, session="s", chunks_remote=1, queue=20, lookup=10, fetch=50, load=20),
        served("u1", 300, session="u", chunks_remote=1, queue=90, fetch=60),
    ]
    events = [
        ev(120, "publish", "a", key="k", seq=1),
        came(200, "t2", 0, "k"),
        came(350, "u1", 0, "m"),
    ]
    (row,) = slack.rows(view(rows, *events))
    assert row["requests"] == 2 and row["bring_ms"]["max"] == 80.0
    arrival = row["from_arrival"]
    assert (arrival["slack_ms"]["p50"], arrival["slack_ms"]["max"]) == (20.0, 90.0)
    assert arrival["enough"] == 0.5
    assert arrival["hidden_share"] == (20 / 80 + 1) / 2
    # The first turn ended at 100 ms, the second would have been computed from 170 ms on.
    assert row["from_last_turn"]["slack_ms"]["p50"] == 70.0
    assert row["from_last_turn"]["hidden_share"] == 70 / 80
    # That copy was known at 120 ms; of the other request's nothing was told.
    assert row["from_publication"]["slack_ms"]["n"] == 1
    assert row["from_publication"]["slack_ms"]["p50"] == 50.0


def test_who_waits_for_nothing_has_no_slack() -> None:
    assert slack.rows(view([served("r1", prefill=10)])) == []


# -- MG6: what makes the worst 1 % ---------------------------------------------------


def test_the_worst_one_percent_is_laid_to_the_part_that_grew() -> None:
    usual = [served(f"r{i}", i, lookup=1, fetch=4, prefill=5) for i in range(198)]
    slow = [served(f"s{i}", i, lookup=2, fetch=44, prefill=5) for i in range(2)]
    (row,) = attribution.rows(view([*usual, *slow]))
    worst = row["worst"]
    assert worst["n"] == 2 and worst["from_ms"] == 51.0
    assert worst["excess_ms"]["fetch"] == 40.0 and worst["excess_ms"]["lookup"] == 1.0
    assert worst["dominates"] == "fetch"
    assert worst["excess_share"]["fetch"] == round(40 / 41, 4)
    assert sum(worst["excess_share"].values()) == pytest.approx(1, abs=1e-3)
    assert row["p50"]["spans_ms"]["prefill"] == 5.0
    assert row["ttft_ms"]["p99"] == 10.0, "198 of 200 took no longer"


def test_one_percent_of_ninety_nine_is_refused_and_the_slowest_is_named() -> None:
    rows = [served(f"r{i}", i, prefill=5) for i in range(98)] + [served("slow", 99, load=9)]
    (row,) = attribution.rows(view(rows))
    assert row["worst"] == {
        "n": 0,
        "too_small": "n too small: the worst 1 % needs 100, n = 99",
    }
    assert row["slowest"]["request_id"] == "slow" and row["slowest"]["dominates"] == "load"


def test_who_got_no_token_is_counted_and_in_no_part() -> None:
    lost = served("lost", 2, ok=False, ttft_ns=None, spans=None)
    (row,) = attribution.rows(view([served("r1", prefill=5), served("r2", 1, prefill=7), lost]))
    assert (row["without_first_token"], row["ttft_ms"]["n"]) == (1, 2)


# -- MG7: trace ----------------------------------------------------------------------


def test_tokens_are_counted_by_site_tier_and_source() -> None:
    rows = [
        served("p", 0, counted=False, group="prepare", **asks("x")),
        served(
            "r1", 1, chunks_remote=2, chunks_local=2, chunks_disk=1, cached_tokens=1040,
            chunks_by_site={"a": 1, "c": 1}, **asks("p", "q", "r", "s", "t"),
        ),
        served("r2", 2, counted=False, warmup=True, cached_tokens=256, **asks("p", "q")),
        served("r3", 3, ok=False, **asks("z")),
    ]  # fmt: skip
    row = trace.cell(view(rows))
    assert (row["requests"], row["answered"]) == (3, 2)
    assert row["tokens"] == {
        "b": {"device": 16 + 256, "dram": 256, "disk": 256, "remote": 512, "computed": 240 + 256}
    }
    assert row["remote_tokens_from"] == {"b": {"a": 256, "c": 256}}


def test_lines_are_mooncakes_with_one_number_per_beginning() -> None:
    rows = [
        served("p", 0, site="a", group="prepare", category="prepare", counted=False, **asks("x")),
        served("r1", 10.5, session="s", setup=("drop b",), **asks("x", rest=10)),
        served("r2", 7.25, warmup=True, counted=False, **asks("y")),
    ]
    found = list(trace.lines([view(rows), view(rows)]))
    assert [one["timestamp"] for one in found] == [0, 7, 10, 1010, 1017, 1020]
    first, second, third = found[:3]
    assert first["hash_ids"] == [0, 1, 2, 3] and second["hash_ids"] == [4, 5, 6, 7]
    assert third["hash_ids"] == [0, 1, 2, 3, 8], "equal beginnings have equal numbers"
    assert (third["input_length"], third["output_length"]) == (266, 4)
    assert third["due_ns"] == 10_500_000 and third["setup"] == ["drop b"]
    assert third["session"] == "s" and "session" not in first
    assert first["category"] == "prepare" and "category" not in third
    assert second["warmup"] is True
    assert found[3]["hash_ids"] == first["hash_ids"], "one numbering for the whole file"


def test_a_cell_whose_blocks_are_not_all_known_is_no_trace_and_says_so() -> None:
    whole = [served("r1", 0, **asks("x"))]
    lacking = [*whole, served("r2", 1, prompt_tokens=256)]
    assert trace.cell(view(whole))["trace"] == "trace.jsonl"
    assert trace.cell(view(lacking))["trace"] is None
    assert [one["request_id"] for one in trace.lines([view(whole), view(lacking)])] == ["r1"]
