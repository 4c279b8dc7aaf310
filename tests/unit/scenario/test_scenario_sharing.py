"""What sites do for each other: contradictions are refused with their path."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, cast

import pytest

from geokv.cache.codec_cost import CodecCost, codec_costs, on_device
from geokv.coordinator.deploy import site_settings
from geokv.errors import ConfigError
from geokv.lab.build import Lab
from geokv.preflight import preflight
from geokv.scenario import Scenario, load_scenario
from geokv.site.process import codec_costs_of
from geokv.site.settings import SiteSettings

WALL = "clock=wall"
NIXL = "cache.substrate.kind=nixl"
CAPS = "cache.substrate.link_caps={a-b: 10G}"

BAD = [
    ([NIXL], "cache.substrate.kind: nixl polls and spins, which stops virtual time"),
    ([NIXL, WALL, "cache.substrate.codec=zstd"], "cache.substrate.codec: has no effect on what ni"),
    (
        [NIXL, WALL, "cache.substrate.codec_cost={encode: 1, decode: 1}"],
        "cache.substrate.codec_cost: has no effect on what nixl carries",
    ),
    (
        ["cache.substrate.codec=fp8"],
        "cache.substrate.codec: fp8 loses something, which cache.exact refuses; use zstd, or",
    ),
    (
        [WALL, "deployment.compute=real", "cache.substrate.codec_cost={encode: 1, decode: 1}"],
        "cache.substrate.codec_cost: nothing is charged with deployment.compute: real",
    ),
    (
        ["cache.substrate.codec_cost={encode: 1G, decode: 1}"],
        "cache.substrate.codec_cost.encode: input should be a valid number",
    ),
    (
        ["cache.substrate.codec=zstd", "expect.closed_form_within={percent: 5}"],
        "expect.closed_form_within: knows of no codec; leave out cache.substrate.codec",
    ),
    ([NIXL, WALL, CAPS], "cache.substrate.link_caps: has no effect on what nixl carries"),
    ([NIXL, WALL, "cache.substrate.fresh=true"], "cache.substrate.fresh: has no effect on what"),
    ([NIXL, WALL, "cache.mixed=convert"], "cache.mixed: what nixl carries is not converted"),
    (
        ["cache.substrate.tenant_caps={tenant-2: 1G}"],
        "cache.substrate.tenant_caps.tenant-2: unknown tenant (known: tenant-0, tenant-1)",
    ),
    (["cache.substrate.tenant_caps={tenant-0: 0}"], "cache.substrate.tenant_caps.tenant-0: must"),
    (
        ["cache.substrate.link_caps={a-c: 1G}"],
        "cache.substrate.link_caps.a-c: unknown site 'c' (known: a, b)",
    ),
    (["cache.substrate.link_caps={a-a: 1G}"], "cache.substrate.link_caps.a-a: must be two sites"),
    (
        ["cache.substrate.link_caps={a-b: 1G, b-a: 1G}"],
        "cache.substrate.link_caps.b-a: the same two sites as a-b",
    ),
    (
        [CAPS, "expect.closed_form_within={percent: 5}"],
        "expect.closed_form_within: is computed from the line's rate and knows of no cap",
    ),
]


@pytest.mark.parametrize(("changes", "said"), BAD)
def test_bad_input_is_refused_with_its_path(changes: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_scenario("smoke", changes)
    assert said in caught.value.message
    assert caught.value.exit_code == 2


class Loopback:
    """Stands where a lab stands: every site is this machine."""

    def address(self, site: str) -> str:
        return "127.0.0.1"


def deployed(scenario: Scenario, folder: Path) -> dict[str, SiteSettings]:
    lab = cast(Lab, Loopback())
    found = site_settings(scenario, scenario, lab, folder / "control", folder, "0", 1)
    return {settings.name: settings for settings in found}


def ring(*changes: str) -> Scenario:
    """Three sites, S = 16."""
    data: dict[str, Any] = {
        "name": "ring",
        "title": "Ring",
        "question": "Is it one?",
        "topology": {
            "name": "ring",
            "sites": {"a": {}, "b": {}, "c": {}},
            "links": {"a-b": {"km": 1}, "b-c": {"km": 1}, "a-c": {"km": 1}},
        },
        "deployment": {"byte_scale": 16},
        "cache": {"directory": {"kind": "central", "site": "a"}},
        "workload": {
            "kind": "shared-prefix",
            "provider": "a",
            "asker": "b",
            "prefix_tokens": 1024,
        },
    }
    return load_scenario(data, list(changes))


def test_caps_are_those_of_each_site_and_divided_by_s(tmp_path: Path) -> None:
    scenario = ring(
        "cache.substrate.link_caps={a-b: 16G, c-b: 8G}",
        "cache.substrate.tenant_caps={tenant-0: 4G}",
    )
    sites = deployed(scenario, tmp_path)
    assert sites["a"].link_caps == {"b": 10**9}
    assert sites["b"].link_caps == {"a": 10**9, "c": 5 * 10**8}
    assert sites["c"].link_caps == {"b": 5 * 10**8}
    assert all(one.tenant_caps == {"tenant-0": 25 * 10**7} for one in sites.values())


def test_a_cap_can_be_swept() -> None:
    scenario = ring(
        "cache.substrate.link_caps={a-b: 16G}",
        'sweep=[{"path": "cache.substrate.link_caps.a-b", "values": ["10G", "20G"]}]',
    )
    caps = [cell.scenario.cache.substrate.link_caps for cell in scenario.cells()]
    assert caps == [{"a-b": 10**10}, {"a-b": 2 * 10**10}]


def test_coding_is_charged_what_the_deployment_takes_for_bytes_divided_by_s(
    tmp_path: Path,
) -> None:
    def costs(*changes: str) -> dict[str, CodecCost] | None:
        scenario = ring("cache.exact=false", *changes)
        found = [codec_costs_of(one) for one in deployed(scenario, tmp_path).values()]
        assert all(one == found[0] for one in found)
        return found[0]

    one = costs("cache.substrate.codec=fp8")
    assert one == {name: cost.scaled(16) for name, cost in codec_costs(3.35e12).items()}
    several = costs("cache.substrate.codec=fp8", "deployment.stands_for=llama-3.1-70b-tp4@h100-sxm")
    assert several is not None and several["fp8"] == on_device(4 * 3.35e12).scaled(16)
    given = costs("cache.substrate.codec=zstd", "cache.substrate.codec_cost={encode: 8, decode: 4}")
    assert given is not None and given["zstd"] == CodecCost(0.5e9, 0.25e9)
    assert costs("cache.substrate.codec_cost={encode: 8, decode: 4}") is None
    real = ["clock=wall", "deployment.compute=real", "deployment.byte_scale=1"]
    assert costs("cache.substrate.codec=zstd", *real) is None


@pytest.mark.parametrize("kind", ["nixl", "mooncake"])
def test_an_engine_that_is_not_installed_is_named_with_its_extra(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = load_scenario("smoke", [f"cache.substrate.kind={kind}", WALL])
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == kind else real(name)
    )
    with pytest.raises(ConfigError) as caught:
        preflight(scenario)
    assert caught.value.message == f"cache.substrate.kind: {kind} is not installed"
    assert caught.value.hint == f"pip install 'geokv[{kind}]'"


def test_what_the_engines_can_be_told_reaches_the_sites(tmp_path: Path) -> None:
    scenario = load_scenario("smoke", [NIXL, WALL])
    assert {one.substrate for one in deployed(scenario, tmp_path).values()} == {"nixl"}
    assert all(one.threaded for one in deployed(scenario, tmp_path).values())


B_DIFFERS = "deployment.sites={b: {block_tokens: 32, chunk_tokens: 64, shards: 2, dtype: bfloat16}}"

BAD_FLEETS = [
    (
        "deployment.sites={b: {block_tokens: 24, chunk_tokens: 256}}",
        "deployment.chunk_tokens: must",
        "deployment.sites.b.chunk_tokens: must be a multiple of deployment.sites.b.block_tokens "
        "(24), got 256",
    ),
    (
        "deployment.sites={b: {chunk_tokens: 2048}}",
        "",
        "workload.prefix_tokens: must be a multiple of deployment.sites.b.chunk_tokens (2048), "
        "got 1024",
    ),
    (
        "deployment.sites={b: {block_tokens: 64}}",
        "",
        "workload.question_tokens: must fill at least one block of 64 tokens, got 32",
    ),
    ("deployment.sites={c: {shards: 2}}", "", "deployment.sites.c: unknown site (known: a, b)"),
    ("deployment.sites={b: {colour: 2}}", "", "deployment.sites.b.colour: unknown key"),
    ("deployment.sites={b: {shards: 0}}", "", "deployment.sites.b.shards: must be ≥ 1, got 0"),
    (
        "deployment.key_tokens=32",
        "",
        "deployment.block_tokens: must be a multiple of deployment.key_tokens (32), got 16",
    ),
]


@pytest.mark.parametrize(("change", "not_said", "said"), BAD_FLEETS)
def test_a_fleet_that_cannot_be_is_refused(change: str, not_said: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_scenario("smoke", [change])
    assert said in caught.value.message
    assert not not_said or not_said not in caught.value.message


def test_synthetic_content_has_no_type_at_any_site() -> None:
    changes = ["deployment.content=synthetic", "deployment.sites={b: {dtype: float16}}"]
    with pytest.raises(ConfigError, match=r"deployment\.sites\.b\.dtype: synthetic content is"):
        load_scenario("smoke", changes)


def test_ranks_must_divide_the_heads() -> None:
    with pytest.raises(ConfigError) as caught:
        preflight(load_scenario("smoke", ["deployment.sites={b: {shards: 4}}"]))
    assert caught.value.message == (
        "deployment.sites.b: layout.kv_heads: must be a multiple of shards (4), got 2"
    )


def test_sites_that_compute_in_other_types_are_not_exact() -> None:
    change = ["deployment.sites={b: {dtype: bfloat16}}", "cache.mixed=convert"]
    with pytest.raises(ConfigError) as caught:
        load_scenario("smoke", change)
    assert "deployment.sites.b.dtype: bfloat16 is not what float32 elsewhere" in str(caught.value)
    assert "needs cache.exact: false" in str(caught.value)
    load_scenario("smoke", [*change, "cache.exact=false"])


@pytest.mark.parametrize("name", ["closed_form_within", "overlap_within"])
def test_what_is_computed_on_paper_knows_no_conversion(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"expect\.{name}: knows of no chunks that are conv"):
        load_scenario("smoke", [B_DIFFERS, f"expect.{name}={{percent: 5}}"])


def test_a_site_gets_its_own_and_the_chain_that_all_share(tmp_path: Path) -> None:
    sites = deployed(load_scenario("smoke", [B_DIFFERS]), tmp_path)
    a, b = sites["a"], sites["b"]
    assert (a.block_tokens, a.chunk_tokens, a.shards, a.dtype) == (16, 256, 1, "float32")
    assert (b.block_tokens, b.chunk_tokens, b.shards, b.dtype) == (32, 64, 2, "bfloat16")
    assert a.key_tokens == b.key_tokens == 16
    blocks = ["deployment.block_tokens=24", "deployment.chunk_tokens=768"]
    blocks += ["workload.prefix_tokens=768", "deployment.sites={b: {block_tokens: 16}}"]
    assert load_scenario("smoke", blocks).deployment.chain_tokens == 8


def test_a_part_of_a_fleet_can_be_swept() -> None:
    axis = 'sweep=[{"path": "deployment.sites.b.chunk_tokens", "values": [64, 1024]}]'
    cells = load_scenario("smoke", [B_DIFFERS, axis]).cells()
    assert [cell.scenario.deployment.at("b").chunk_tokens for cell in cells] == [64, 1024]


BAD_COPIES = [
    ("{to: [z]}", "cache.replication.to: unknown site 'z' (known: a, b)"),
    ("{to: [a, a]}", "cache.replication.to: a site is listed twice"),
    ("{copies: 2}", "cache.replication.copies: must be ≤ 1, or there is no other site left, got 2"),
    ("{copies: 0}", "cache.replication.copies: must be ≥ 1, got 0"),
    ("{}", "cache.replication: must have either to or copies"),
    ("{to: [a], copies: 1}", "cache.replication: must have either to or copies"),
    ("{to: [a], when: never}", "cache.replication.when: input should be 'published' or 'hot'"),
]


@pytest.mark.parametrize(("value", "said"), BAD_COPIES)
def test_copies_that_cannot_be_are_refused(value: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_scenario("smoke", [f"cache.replication={value}"])
    assert said in caught.value.message


def test_copies_need_a_connection_beside_the_one_that_pushes() -> None:
    with pytest.raises(ConfigError, match=r"cache\.substrate\.streams: must be ≥ 2 beside cache\."):
        load_scenario("smoke", ["cache.replication={copies: 1}", "cache.substrate.streams=1"])


@pytest.mark.parametrize(
    ("value", "to"),
    [
        ("{to: [c]}", {"a": ("c",), "b": ("c",), "c": None}),
        ("{copies: 1}", {"a": ("b",), "b": ("c",), "c": ("a",)}),
        ("{copies: 2, when: hot}", {"a": ("b", "c"), "b": ("c", "a"), "c": ("a", "b")}),
    ],
)
def test_copies_go_to_those_named_or_to_who_follows(
    value: str, to: dict[str, tuple[str, ...] | None], tmp_path: Path
) -> None:
    sites = deployed(ring(f"cache.replication={value}"), tmp_path)
    asked = {name: one.replication for name, one in sites.items()}
    assert {name: one.to if one else None for name, one in asked.items()} == to
    assert {one.when for one in asked.values() if one} == {"hot" if "hot" in value else "published"}
