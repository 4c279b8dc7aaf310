"""Cells of a sweep, and the prompts asked in them."""

from __future__ import annotations

import pytest
from test_scenario_model import SMALL

from geokv.scenario import load_scenario, path_km, path_links
from geokv.scenario.prompts import NUMBER_TOKENS, question, shared_prefix


def test_grid_of_two_axes_last_changes_fastest() -> None:
    axes = [
        {"path": "links.a-b.km", "values": [0, 50], "out_of_range": [600]},
        {"path": "links.a-b.rate", "values": ["10G", "100G"]},
    ]
    cells = load_scenario({**SMALL, "sweep": axes}).cells()
    assert [cell.index for cell in cells] == list(range(6))
    assert [tuple(cell.settings.values()) for cell in cells[:3]] == [
        (0, "10G"),
        (0, "100G"),
        (50, "10G"),
    ]
    assert [cell.out_of_range for cell in cells] == [False] * 4 + [True] * 2
    assert cells[3].topology.links["a-b"].km == 50
    assert cells[3].topology.links["a-b"].rate == 100_000_000_000
    assert cells[3].label == "a-b 50 km, a-b rate 100G"


def test_variants_set_several_things_and_every_cell_is_a_whole_scenario() -> None:
    axes = [
        {
            "name": "transfer",
            "variants": {
                "serial": {"cache.substrate.streams": 1, "cache.substrate.in_flight": 1},
                "pipelined": {"cache.substrate.streams": 8},
            },
        },
        {"path": "deployment.chunk_tokens", "values": [64, 128]},
    ]
    scenario = load_scenario({**SMALL, "sweep": axes})
    cells = scenario.cells()
    assert [cell.label for cell in cells] == [
        "transfer serial, chunk_tokens 64",
        "transfer serial, chunk_tokens 128",
        "transfer pipelined, chunk_tokens 64",
        "transfer pipelined, chunk_tokens 128",
    ]
    substrates = [cell.scenario.cache.substrate for cell in cells]
    written = scenario.cache.substrate
    assert [(one.streams, one.in_flight) for one in substrates[::2]] == [
        (1, 1),
        (8, written.in_flight),
    ]
    assert [cell.scenario.deployment.chunk_tokens for cell in cells[:2]] == [64, 128]
    assert cells[0].scenario.sweep == []
    assert cells[0].settings == {"transfer": "serial", "deployment.chunk_tokens": 64}


def test_without_a_sweep_there_is_one_cell() -> None:
    (cell,) = load_scenario({**SMALL, "sweep": []}).cells()
    assert (cell.km, cell.label, cell.settings) == (50, "as written", {})


def test_distance_is_that_of_the_least_km_route() -> None:
    topology = load_scenario("smoke", ["topology=metro-ring"]).topology
    assert path_links(topology, "a", "c") == ["a-b", "b-c"]
    assert path_km(topology, "a", "c") == 35
    assert path_links(topology, "d", "b") == ["c-d", "b-c"]


def test_prefix_is_seeded() -> None:
    assert shared_prefix(1, 500, 256) == shared_prefix(1, 500, 256)
    assert shared_prefix(1, 500, 256) != shared_prefix(2, 500, 256)
    # A longer prefix begins with the shorter one: only its length was changed.
    assert shared_prefix(1, 500, 256)[:100] == shared_prefix(1, 100, 256)
    assert set(shared_prefix(1, 5000, 256)) == set(range(256))


def test_questions_are_the_same_again_and_differ_in_their_first_block() -> None:
    asked = [
        (cell, repeat, warmup)
        for cell in range(30)
        for repeat in range(30)
        for warmup in (False, True)
    ]
    first = {tuple(question(3, c, r, 16, 256, warmup=w)[:NUMBER_TOKENS]) for c, r, w in asked}
    assert len(first) == len(asked)
    assert question(3, 2, 1, 128, 256) == question(3, 2, 1, 128, 256)
    assert question(3, 2, 1, 128, 256) != question(4, 2, 1, 128, 256)
    assert question(3, 2, 1, 128, 256)[NUMBER_TOKENS:] != question(3, 2, 2, 128, 256)[8:]
    assert all(0 <= token < 50 for token in question(3, 2, 1, 128, 50))


def test_questions_that_cannot_be_numbered_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be numbered"):
        question(1, 0, 0, NUMBER_TOKENS - 1, 256)
    with pytest.raises(ValueError, match="cannot be numbered"):
        question(1, 3, 0, 128, 8)
