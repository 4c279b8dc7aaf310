"""The energy proxy against numbers worked out by hand."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from handwritten import SCENARIO, Run

from geokv.errors import ConfigError
from geokv.measure import summarise
from geokv.measure.energy.account import account, lit_w
from geokv.measure.energy.constants import Constants, constants
from geokv.measure.energy.grid import Ends, Grid
from geokv.measure.energy.request import Phases, joules
from geokv.measure.energy.saving import saving
from geokv.measure.energy.sun import COLD, WARM, follow
from geokv.measure.energy.tornado import tornado
from geokv.scenario import load_scenario
from geokv.scenario.energy import Energy

RECOMPUTE = Phases(0.6, 0.5, 0.05, 0, 1, False, 1000, 10)
REMOTE = Phases(0.2, 0.01, 0.05, 8e9, 1, True, 1000, 10)  # 1 GB over the link
LOCAL = Phases(0.1, 0.01, 0.05, 0, 1, False, 1000, 10)


@pytest.fixture
def numbers() -> Constants:
    """70, 700 and 300 W by phase, 19 W an end, 150 pJ/bit, 70 W of host, PUE 1.5."""
    return constants(Energy(), {})


def test_an_account_by_hand(numbers: Constants) -> None:
    one = account(RECOMPUTE, numbers)
    assert one.gpu_idle_j == pytest.approx(42)
    assert one.gpu_prefill_j == pytest.approx(315)
    assert one.gpu_decode_j == pytest.approx(11.5)
    assert one.host_j == pytest.approx(42)
    assert (one.optics_j, one.switch_j, one.transfer_j) == (0, 0, 0)
    assert one.energy_j == pytest.approx(1.5 * 410.5)
    assert one.energy_consumed_kwh == pytest.approx(615.75 / 3.6e6)
    assert one.emissions_g == pytest.approx(0.0822710)
    other = account(REMOTE, numbers)
    assert other.optics_j == pytest.approx(7.6)
    assert other.transfer_j == pytest.approx(1.2)
    assert other.energy_j == pytest.approx(1.5 * 54.6)
    assert other.marginal_j == pytest.approx(1.5 * (6.3 + 11.5 + 1.2))


def test_a_site_of_several_gpus_has_what_stands_around_each_of_them() -> None:
    """A profile's watts are of all its GPUs; the host's, and what it leaves out, are of one."""
    eight = {
        "tensor_parallel": 8,
        "watts": {"idle": 560, "prefill": 5600, "range": "idle 480-960", "source": "8 times one"},
    }
    numbers = constants(Energy(), eight)
    assert (numbers.host_w.value, numbers.host_w.low, numbers.host_w.high) == (560, 560, 4600)
    assert numbers.host_w.source.startswith("8 GPUs, each: about 10 %")
    assert (numbers.idle_w.value, numbers.idle_w.low, numbers.idle_w.high) == (560, 480, 960)
    assert (numbers.prefill_w.value, numbers.decode_w.value) == (5600, 8 * 300)
    # One light and one switch, however many GPUs.
    assert (numbers.end_w.value, numbers.switch_w.value) == (19, 0)
    own = constants(Energy.model_validate({"host": {"base_w": 100}, "gpu": {"idle_w": 500}}), eight)
    assert (own.host_w.value, own.idle_w.value) == (800, 500)
    assert account(RECOMPUTE, numbers).host_j == pytest.approx(560 * 0.6)


HERE, THERE = Grid(1.2, 100.0), Grid(1.6, 400.0)


def test_each_site_pays_with_its_own_pue_and_carbon_and_half_of_the_link(
    numbers: Constants,
) -> None:
    """45.8 J at the server and 8.8 J on the link, as worked out above."""
    one = account(REMOTE, numbers, Ends(HERE, THERE))
    assert one.energy_j == pytest.approx(1.2 * 45.8 + 1.4 * 8.8)
    assert one.marginal_j == pytest.approx(1.2 * (6.3 + 11.5) + 1.4 * 1.2)
    grams = (1.2 * 100 * (45.8 + 4.4) + 1.6 * 400 * 4.4) / 3.6e6
    assert one.emissions_g == pytest.approx(grams)
    other = account(RECOMPUTE, numbers, Ends(HERE, THERE))
    assert other.energy_j == pytest.approx(1.2 * 410.5)
    assert other.emissions_g == pytest.approx(1.2 * 410.5 * 100 / 3.6e6)
    assert lit_w(numbers, 1, Ends(HERE, THERE)) == pytest.approx(1.4 * 2 * 19)
    saves = saving(RECOMPUTE, REMOTE, numbers, 100e9, Ends(HERE, THERE))
    assert saves.saved_j == pytest.approx(other.energy_j - one.energy_j)
    assert saves.lit_w == pytest.approx(53.2)


def test_gpu_and_link_are_those_of_the_table(numbers: Constants) -> None:
    """What ``table.csv`` calls the proxy is the account without host, switch and overhead."""
    for phases in (RECOMPUTE, REMOTE):
        parts, one = joules(phases, numbers), account(phases, numbers)
        assert parts.gpu_j == pytest.approx(one.gpu_j)
        assert parts.total_j == pytest.approx(one.gpu_j + one.optics_j + one.transfer_j)


def test_a_switch_of_its_own_and_two_links(numbers: Constants) -> None:
    own = numbers.at("switch_w", 10)
    one = account(replace(REMOTE, links=2), own)
    assert one.switch_j == pytest.approx(2 * 10 * 0.2 * 2)
    assert one.optics_j == pytest.approx(15.2)
    assert one.transfer_j == pytest.approx(2.4)
    assert lit_w(own, 2) == pytest.approx(1.5 * 2 * 29 * 2)
    assert account(RECOMPUTE, own).switch_j == 0


def test_what_a_hit_saves_and_how_much_use_pays_for_the_light(numbers: Constants) -> None:
    one = saving(RECOMPUTE, REMOTE, numbers, 100e9)
    assert one.saved_j == pytest.approx(615.75 - 81.9)
    assert one.saved_marginal_j == pytest.approx(1.5 * (326.5 - 19))
    assert one.moved_gb == 1
    assert one.saved_j_per_gb == pytest.approx(533.85)
    assert one.lit_w == pytest.approx(57)
    assert one.hits_per_s == pytest.approx(57 / 461.25)
    # One GB takes 80 ms of the line.
    assert one.utilisation == pytest.approx(57 / 461.25 * 0.08)
    assert one.saved_at_full_use_w == pytest.approx(461.25 / 0.08 - 57)


def test_a_hit_that_saves_nothing_at_the_margin_never_pays(numbers: Constants) -> None:
    dear = numbers.at("transfer_pj_per_bit", 40_000)  # 320 J for the GB
    one = saving(RECOMPUTE, REMOTE, dear, 100e9)
    assert one.saved_marginal_j == pytest.approx(1.5 * (326.5 - 17.8 - 320))
    assert (one.hits_per_s, one.utilisation) == (None, None)


def test_a_tornado_by_hand(numbers: Constants) -> None:
    bars = tornado(lambda these: account(REMOTE, these).energy_j, numbers)
    by_name = {bar.constant: bar for bar in bars}
    # 15 to 60 W an end: 1.5 · 2 · 0.2 s
    assert by_name["end_w"].at_low == pytest.approx(81.9 - 1.5 * 2 * 4 * 0.2)
    assert by_name["end_w"].at_high == pytest.approx(81.9 + 1.5 * 2 * 41 * 0.2)
    assert by_name["pue"].at_low == pytest.approx(1.1 * 54.6)
    assert by_name["host_w"].at_high == pytest.approx(81.9 + 1.5 * 505 * 0.2)
    swings = [bar.swing for bar in bars]
    assert swings == sorted(swings, reverse=True)
    # Neither changes a joule.
    assert not by_name.keys() & {"carbon_intensity_g_per_kwh", "core_w"}
    pinned = numbers.at("pue", 1.2)
    assert "pue" not in {bar.constant for bar in tornado(lambda _: 1.0, pinned)}


def test_a_day_by_hand(numbers: Constants) -> None:
    """Here 50 g by night and 400 g by day, there always 200 g; a kWh is 3.6 MJ."""
    here, there = [50.0] * 12 + [400.0] * 12, [200.0] * 24
    arms = {"recompute": RECOMPUTE, "local-hit": LOCAL, "remote-hit": REMOTE}
    day = follow(arms, numbers, (here, 1.5), (there, 1.2))
    night, noon = day.hours[0], day.hours[12]
    home, away = 50 * 1.5 / 3.6e6, 200 * 1.2 / 3.6e6
    assert night.costs["compute here"] == pytest.approx(410.5 * home)
    assert night.costs["fetch here"] == pytest.approx(45.8 * home + 8.8 * (home + away) / 2)
    # A local hit: 7 + 6.3 + 11.5 + 7 J there, and its 0.1 s of light at both ends.
    assert night.costs["serve there"] == pytest.approx(31.8 * away + 3.8 * (home + away) / 2)
    assert night.costs["compute there"] == pytest.approx(410.5 * away + 22.8 * (home + away) / 2)
    assert (night.best(WARM), night.best(COLD)) == ("fetch here", "compute here")
    assert (noon.best(WARM), noon.best(COLD)) == ("serve there", "compute there")
    both = (night.costs["fetch here"] + noon.costs["serve there"]) / 2
    assert day.following(WARM) == pytest.approx(both)
    assert day.saved(WARM) == pytest.approx(1 - both / day.mean("serve there"))
    assert day.mean("serve there") < day.mean("fetch here")


def test_power_that_is_free_saves_no_share(numbers: Constants) -> None:
    arms = {"recompute": RECOMPUTE, "local-hit": LOCAL, "remote-hit": REMOTE}
    day = follow(arms, numbers, ([0.0] * 24, 1.5), ([0.0] * 24, 1.5))
    assert day.saved(WARM) is None


SITES: dict[str, Any] = {
    "a": {"carbon_intensity_g_per_kwh": 200, "price_per_kwh": [0.1] * 24, "source": "me"},
    "b": {"carbon_intensity_g_per_kwh": [50.0] * 12 + [400.0] * 12, "pue": 1.2, "source": "you"},
}


def test_the_summary_of_a_run(tmp_path: Path) -> None:
    run = Run({**copy.deepcopy(SCENARIO), "energy": {"sites": SITES}})
    energy = summarise(run.write(tmp_path))["energy"]
    assert energy["grade"] == "constants"
    assert "virtual clock" in energy["grades"]["nvml"]
    assert energy["measured"] is None
    far = energy["cells"][2]
    # T = 531.5 ms on average, 500 ms of prefill, 30 ms of decode; the host's 70 W beside it.
    machines_j = (70 + 70) * 0.5315 + 630 * 0.5 + 230 * 0.03
    recompute = far["arms"]["recompute"]
    # Asked at b: its own PUE of 1.2 and 225 g, its day's mean; a has the constants' 1.5 and 200 g.
    assert far["sites"] == {
        "b": {"pue": 1.2, "carbon_intensity_g_per_kwh": 225},
        "a": {"pue": 1.5, "carbon_intensity_g_per_kwh": 200},
    }
    assert recompute["energy_j"] == round(1.2 * machines_j, 3)
    assert recompute["j_per_output_token"] == round(1.2 * machines_j / 4, 4)
    assert recompute["j_per_prompt_token"] == round(1.2 * machines_j / 8320, 4)
    assert recompute["parts_j"]["overhead"] == round(0.2 * machines_j, 3)
    assert recompute["emissions_g"] == pytest.approx(1.2 * machines_j * 225 / 3.6e6)
    saves = far["remote_hit_saves"]
    assert saves["moved_gb"] == round(2**30 / 1e9, 6)
    marginal_j = 1.2 * 630 * 0.49 - 1.35 * 150e-12 * 2**30 * 8
    assert saves["saved_marginal_j"] == round(marginal_j, 3)
    # 1 GiB on a line of 100 Gb/s (25 Gb/s as it ran, S = 4).
    share = 1.35 * 38 / marginal_j * 2**30 * 8 / 100e9
    assert saves["break_even"]["utilisation"] == pytest.approx(share, rel=1e-6)
    assert energy["tornado"]["label"] == "a-b 100 km"
    assert energy["tornado"]["value"] == saves["saved_j"]
    widest = energy["tornado"]["bars"][0]
    # 575 W of host and not 70, for the 402.1 ms that a hit is faster at 100 km.
    assert widest["constant"] == "host_w"
    faster_s = (501 - 98.899346) / 1e3
    assert widest["at_high"] - widest["at_low"] == pytest.approx(1.2 * 505 * faster_s, abs=1e-3)
    (carbon,) = energy["follow_the_sun"]  # b has no price
    assert (carbon["by"], carbon["here"], carbon["there"]) == (
        "carbon_intensity_g_per_kwh", "b", "a",
    )  # fmt: skip
    assert [len(cell["hours"]) for cell in carbon["cells"]] == [24] * 4
    assert carbon["cells"][2]["hours"][0]["best"] == "fetch here"
    # One answer for one thing: what always computing or fetching here emits.
    for arm, way in (("recompute", "compute here"), ("remote_hit", "fetch here")):
        emitted = far["arms"][arm]["emissions_g"]
        assert carbon["cells"][2]["mean"][way] == pytest.approx(emitted, rel=1e-6)
    assert carbon["cells"][2]["hours"][12]["best"] == "serve there"
    json.dumps(energy, allow_nan=False)


def test_a_day_by_price(tmp_path: Path) -> None:
    """A kWh costs 0.10 at a all day; at b 0.05, at noon 0.40, and at 13 h somebody pays for it."""
    prices = [0.05] * 12 + [0.4, -0.02] + [0.05] * 10
    sites = {
        "a": {"price_per_kwh": 0.1, "source": "me"},
        "b": {"price_per_kwh": prices, "pue": 1.2, "source": "you"},
    }
    run = Run({**copy.deepcopy(SCENARIO), "energy": {"sites": sites}})
    energy = summarise(run.write(tmp_path))["energy"]
    (day,) = energy["follow_the_sun"]
    assert (day["by"], day["unit"]) == ("price_per_kwh", "money")
    assert day["sites"]["b"]["by_hour"] == prices
    hours = day["cells"][2]["hours"]
    kwh = 1.2 * ((70 + 70) * 0.5315 + 630 * 0.5 + 230 * 0.03) / 3.6e6  # at b's meter, to compute
    for hour in (0, 12, 13):
        assert hours[hour]["costs"]["compute here"] == pytest.approx(prices[hour] * kwh, rel=1e-6)
    assert hours[0]["best"] == "fetch here" and hours[12]["best"] == "serve there"
    # Who is paid for drawing power computes, whatever it could fetch.
    assert hours[13]["best"] == "compute here"
    cheapest = [min(hour["costs"][way] for way in WARM) for hour in hours]
    assert day["cells"][2]["following"] == pytest.approx(sum(cheapest) / 24, rel=1e-6)


def judged(summary: dict[str, Any]) -> dict[str, tuple[bool | None, str]]:
    return {item["name"]: (item["ok"], item["said"]) for item in summary["expectations"]}


PROMISES = {
    "ordered": True,
    "saved_change_percent_at_most": 1,
    "break_even_utilisation_at_most": 0.05,
    "following_saves_percent_at_least": 5,
}


def with_promises(**changes: Any) -> dict[str, Any]:
    data = copy.deepcopy(SCENARIO)
    data["expect"] = {"energy": PROMISES}
    return {**data, "energy": {"sites": SITES}, **changes}


def test_promises_are_kept_and_broken(tmp_path: Path) -> None:
    run = Run(with_promises())
    summary = summarise(run.write(tmp_path / "kept"))
    assert summary["verdict"] == "pass"
    lines = judged(summary)
    assert lines["energy.ordered"][1] == "recompute > remote hit > local hit in all 3 cells"
    # 2 ms more at 100 km: (1.2 · 140 + 1.35 · 38) W · 2 ms of some 410 J
    assert "0.1" in lines["energy.saved_change_percent_at_most"][1]
    assert (
        "fetch here 12 h, serve there 12 h" in lines["energy.following_saves_percent_at_least"][1]
    )
    # Prefill for nothing: a remote hit saves nothing, and costs more.
    energy = {"sites": SITES, "gpu": {"prefill_w": 70}, "link": {"end_w": 4000}}
    summary = summarise(Run(with_promises(energy=energy)).write(tmp_path / "broken"))
    lines = judged(summary)
    assert summary["verdict"] == "fail"
    assert lines["energy.ordered"][0] is False
    assert lines["energy.saved_change_percent_at_most"][0] is False
    assert lines["energy.break_even_utilisation_at_most"][0] is False
    assert "no use pays" in lines["energy.break_even_utilisation_at_most"][1]


def test_promises_that_cannot_be_seen_are_unknown(tmp_path: Path) -> None:
    run = Run(with_promises())
    run.requests = [row for row in run.requests if row["arm"] != "remote-hit" or row["cell"] != 1]
    lines = judged(summarise(run.write(tmp_path)))
    assert {lines[f"energy.{name}"][0] for name in PROMISES} == {None}


def test_a_void_cell_has_no_joules(tmp_path: Path) -> None:
    run = Run()
    run.cells[1]["links"][0].update(ok=False, problems=["too slow"])
    cell = summarise(run.write(tmp_path))["energy"]["cells"][1]
    assert (cell["arms"], cell["remote_hit_saves"]) == ({}, None)


DRILL = {
    "kind": "stream", "askers": {"b": 1}, "providers": ["a"], "prefixes": 1, "prefix_tokens": 256,
    "requests": 5, "rate": 5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"energy": {"grade": "nvml"}}, "energy.grade: nvml reads a meter"),
        (
            {"energy": {"sites": {"a": {"source": "me", "pue": 1.2}}}, "workload": DRILL},
            "energy.sites: drills count all sites together",
        ),
        (
            {"clock": "wall", "energy": {"grade": "cpu"}, "workload": DRILL},
            "energy.grade: drills are not metered",
        ),
        ({"energy": {"pue": 0.9}}, "energy.pue: must be ≥ 1, got 0.9"),
        ({"energy": {"sites": {"c": {"source": "me"}}}}, "energy.sites.c: unknown site"),
        (
            {"energy": {"sites": {"a": {"source": "me", "price_per_kwh": [1.0] * 23}}}},
            "energy.sites.a.price_per_kwh",
        ),
        (
            {"expect": {"energy": {"following_saves_percent_at_least": 1}}},
            "needs energy.sites.a",
        ),
        (
            {"arms": ["recompute", "remote-hit"], "expect": {"energy": {"ordered": True}}},
            "expect.energy: needs arm local-hit",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_scenario({**copy.deepcopy(SCENARIO), **changes})


def test_scenarios_that_say_nothing_of_energy_keep_their_hash() -> None:
    """Constants may be added without making every run of yesterday another one."""
    assert set(load_scenario(SCENARIO).resolved()["energy"]) == {"gpu", "link"}
    assert set(load_scenario(SCENARIO).resolved()["energy"]["link"]) == {
        "end_w", "transfer_pj_per_bit",
    }  # fmt: skip


def test_watts_of_a_gpu_are_cut_out_of_a_whole_run(tmp_path: Path) -> None:
    """One VM; every request is sent at 1 s (repeat 0) or 2 s (repeat 1) on the same clock. From
    1,000 to 3,000 ms the board draws 400 W, else 80 W; its processors always 30 W."""
    run = Run({**copy.deepcopy(SCENARIO), "clock": "wall"})
    run.manifest["clock"] = "wall"
    folder = run.write(tmp_path)
    head = {"grade": "nvml", "period_ns": 10_000_000, "why": {}, "gpus": ["one"], "zones": ["z"]}
    samples = [
        {
            "t_ns": t_ms * 1_000_000,
            "cpu_ns": {"a": t_ms * 1_000_000, "b": 0},
            "rapl_uj": 30_000 * t_ms,
            "gpu_mw": [400_000 if 1000 <= t_ms <= 3000 else 80_000],
        }
        for t_ms in range(0, 8000, 10)
    ]
    lines = [json.dumps(row) for row in (head, *samples)]
    (folder / "records" / "power-0.jsonl").write_text("\n".join(lines) + "\n")
    energy = summarise(folder)["energy"]
    assert energy["grade"] == "nvml"
    assert energy["grades"]["nvml"] == "power of one"
    measured = energy["measured"]
    assert (measured["meter"], measured["gpu_idle_w"]) == ("nvml", 80)
    assert [one["cell"] for one in measured["cells"]] == [0, 1, 2, 3]
    arm = measured["cells"][2]["arms"]["recompute"]
    assert arm["n"] == 2
    assert arm["gpu_prefill_w"] == arm["gpu_decode_w"] == pytest.approx(400)
    total_s = 0.5315
    assert arm["gpu_j"] == pytest.approx(400 * total_s)
    assert arm["cpu_j"] == pytest.approx(30 * total_s)
    assert arm["cpu_s"] == pytest.approx(total_s)
    assert arm["energy_j"] == pytest.approx(430 * total_s)
    assert arm["j_per_output_token"] == pytest.approx(430 * total_s / 4)


def test_without_rapl_processor_time_is_taken_times_watts(tmp_path: Path) -> None:
    energy = {"host": {"core_w": 5}}
    run = Run({**copy.deepcopy(SCENARIO), "clock": "wall", "energy": energy})
    run.manifest["clock"] = "wall"
    folder = run.write(tmp_path)
    head = {"grade": "cpu", "period_ns": 10_000_000, "why": {"rapl": "no"}, "gpus": [], "zones": []}
    samples = [
        {"t_ns": t_ms * 10**6, "cpu_ns": {"b": t_ms * 5 * 10**5}, "rapl_uj": None, "gpu_mw": []}
        for t_ms in range(0, 2300, 10)
    ]
    lines = [json.dumps(row) for row in (head, *samples)]
    (folder / "records" / "power-0.jsonl").write_text("\n".join(lines) + "\n")
    measured = summarise(folder)["energy"]["measured"]
    assert (measured["meter"], measured["gpu_idle_w"]) == ("cpu-time", None)
    # Repeat 1 ends after 2,290 ms and is not covered: the 531 ms of repeat 0 at half a processor.
    one = {
        "n": 1, "cpu_s": 0.2655, "cpu_j": 1.3275, "energy_j": 1.3275,
        "j_per_output_token": round(1.3275 / 4, 6),
    }  # fmt: skip
    assert [cell["arms"]["recompute"] for cell in measured["cells"]] == [one] * 4


def test_a_void_cell_was_metered_for_nothing(tmp_path: Path) -> None:
    run = Run({**copy.deepcopy(SCENARIO), "clock": "wall"})
    run.manifest["clock"] = "wall"
    run.cells[1]["links"][0].update(ok=False, problems=["too slow"])
    folder = run.write(tmp_path)
    head = {"grade": "cpu", "period_ns": 10_000_000, "why": {}, "gpus": [], "zones": ["z"]}
    samples = [
        {"t_ns": t_ms * 10**6, "cpu_ns": {}, "rapl_uj": 30_000 * t_ms, "gpu_mw": []}
        for t_ms in range(0, 8000, 10)
    ]
    lines = [json.dumps(row) for row in (head, *samples)]
    (folder / "records" / "power-0.jsonl").write_text("\n".join(lines) + "\n")
    measured = summarise(folder)["energy"]["measured"]
    assert [one["cell"] for one in measured["cells"]] == [0, 2, 3]
