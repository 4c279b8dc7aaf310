"""What a user may draw, and how a mistake is named."""

import pytest

from geokv.errors import ConfigError
from geokv.lab.profiles import known_profiles, load_profile
from geokv.lab.topology import GilbertElliott, load_topology


def draw(sites="ab", **links):
    return {
        "name": "t",
        "sites": {site: {} for site in sites},
        "links": {name.replace("_", "-"): link for name, link in links.items()},
    }


@pytest.mark.parametrize(
    ("drawing", "message"),
    [
        (draw(a_b={"km": -3}), "links.a-b.km: must be ≥ 0, got -3"),
        (draw(a_b={"km": 1, "rate": 0}), "links.a-b.rate: must be > 0, got 0"),
        (draw(a_b={"km": 1, "rat": "1G"}), "links.a-b.rat: unknown key"),
        (draw(a_b={"km": 1, "rate": "1Gbyte"}), "links.a-b.rate: unknown unit 'Gbyte'"),
        (draw(a_b={"km": float("inf")}), "links.a-b.km: "),
        (draw(a_b={"km": 1, "loss": 1.5}), "links.a-b.loss: must be ≤ 1, got 1.5"),
        (draw("abc", a_b={"km": 1}), "sites.c: no link reaches it"),
        (draw(a_a={"km": 1}), "links.a-a: joins a with itself"),
        (draw(a_b={"km": 1}, b_a={"km": 1}), "links.b-a: the same link as a-b; keep one"),
        (draw(a_x={"km": 1}), "links.a-x: no site is named 'x' (sites: a, b)"),
        (draw(ab={"km": 1}), "links.ab: a link is named by its two sites"),
        (draw(a_b={"km": 1, "kind": "pigeon"}), "unknown profile 'pigeon' (known: apn, internet"),
        (draw("abcd", a_b={"km": 1}, c_d={"km": 1}), "fall apart into 2 networks: a b | c d"),
        (draw(["a", "Bad"], a_b={"km": 1}), "sites.Bad: a site name is a lower-case letter"),
        (draw(["a", "toolongname"]), "sites.toolongname: a site name"),
        ({"sites": {"a": {}}}, "name: is required"),
        (
            draw(
                a_b={
                    "km": 1,
                    "loss": 0.1,
                    "loss_model": {
                        "kind": "gilbert-elliott",
                        "good_to_bad": 0.1,
                        "bad_to_good": 0.5,
                    },
                }
            ),
            "loss: not together with loss_model",
        ),
    ],
)
def test_mistakes_are_named_with_their_path(drawing, message):
    with pytest.raises(ConfigError) as error:
        load_topology(drawing)
    assert message in str(error.value)


def test_every_problem_is_told_at_once():
    with pytest.raises(ConfigError) as error:
        load_topology(draw("abc", a_b={"km": -1, "colour": "red"}))
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize(
    "name", ["pair", "triangle", "metro-ring", "hub-spoke", "long-haul", "scale-64"]
)
def test_shipped_topologies_load(name):
    assert load_topology(name).name == name


def test_metro_ring_is_five_sites_of_10_to_100_km():
    ring = load_topology("metro-ring")
    assert len(ring.sites) == len(ring.links) == 5
    assert sorted(link.km for link in ring.links.values())[:: len(ring.links) - 1] == [10, 100]


def test_unknown_name_lists_what_is_shipped():
    with pytest.raises(ConfigError, match="shipped: hub-spoke, long-haul, metro-ring, pair"):
        load_topology("star")


def test_a_path_is_read_as_a_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nsites: {a: , b: }\nlinks: {a-b: {km: 7}}\n")
    assert load_topology(path).links["a-b"].km == 7
    path.write_text("name: mine\nsites: {a: , b: }\nlinks: {a-b: {km: -7}}\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: links\.a-b\.km"):
        load_topology(path)


def test_one_site_alone_needs_no_link():
    assert load_topology(draw("a")).sites.keys() == {"a"}


def test_with_link_keeps_the_rest_and_checks_the_new_value():
    pair = load_topology("pair")
    changed = pair.with_link("a-b", km=7, rate="10G")
    assert (changed.links["a-b"].km, changed.links["a-b"].rate) == (7, 10**10)
    assert changed.sites == pair.sites
    with pytest.raises(ConfigError, match=r"links\.a-b\.km: must be ≥ 0, got -1"):
        pair.with_link("a-b", km=-1)
    with pytest.raises(ConfigError, match=r"links\.a-c: no such link \(links: a-b\)"):
        pair.with_link("a-c", km=1)


def test_profiles_carry_a_source_for_each_number():
    assert known_profiles() == ("apn", "internet", "ip-shared", "ip-wan", "lan", "leased")
    for name in known_profiles():
        profile = load_profile(name)
        for field in type(profile).model_fields:
            if field != "title":
                assert len(getattr(profile, field).source) >= 8, (name, field)


def test_apn_profile_is_what_the_demonstrations_saw():
    apn = load_profile("apn")
    # 89 km over an APN: RTT about 0.9 ms (UK demonstration, 2024-04)
    rtt_ms = 2 * (89 * apn.us_per_km.value * apn.detour.value / 1000 + apn.equipment.value * 1000)
    assert rtt_ms == pytest.approx(0.893, abs=0.01)
    assert apn.rate.value == 100e9
    assert apn.mtu.value == 9000
    assert load_profile("internet").mtu.value == 1500


def test_mean_loss_of_bursts():
    model = GilbertElliott(kind="gilbert-elliott", good_to_bad=0.01, bad_to_good=0.24)
    assert model.mean_loss == pytest.approx(0.04)
