"""Energy: what a request draws, what fetching saves, what matters, who should serve when."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from geokv.report import plot_tornado, words
from geokv.report.page.chart import chart, kept
from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Block, Bullets, Heading, Para, Table

_ABOUT = (
    "A proxy: published watts × measured phases of the deployment the run stands for, at the "
    "meters of its sites (PUE included). Nothing of it is metered unless a table says so. "
    "Emissions are of operation; what making the hardware emitted is not counted."
)
_SAVED = (
    "Saved: recompute less remote hit, everything counted. At the margin: what one hit more saves "
    "where GPUs, hosts and optics are on anyway; only that can pay for a wavelength lit all "
    "day. Break-even: how often it must be used for that, and the share of the line this is."
)
_FLEET = (
    "Seconds are summed over sites; what is neither prefill nor decode of an answered request is "
    "idle. Links are lit all the time, used or cut."
)
_TORNADO = "Each constant at the ends of its range, the others at their value; the ends are named."
_METERED = {
    "cpu_s": "CPU s",
    "cpu_j": "CPU J",
    "gpu_j": "GPU J",
    "energy_j": "J",
    "gpu_prefill_w": "GPU in prefill W",
    "gpu_decode_w": "GPU in decode W",
    "j_per_output_token": "J per output token",
}
_WAYS = ("compute here", "fetch here", "serve there")
_BY = {
    "carbon_intensity_g_per_kwh": ("carbon", "mgCO₂e per request", 1000.0),
    "price_per_kwh": ("price", "price per 1,000 requests", 1000.0),
}
_DRAWN = {
    "carbon_intensity_g_per_kwh": "follow_the_sun",
    "price_per_kwh": "follow_the_price",
}


def power_section(summary: dict[str, Any], run_dir: Path) -> Section | None:
    """None of a run in which no request was measured."""
    energy = summary.get("energy")
    if energy and energy.get("fleets"):
        return Section("energy", "Energy", _drill(summary, energy))
    if not energy or not any(cell["arms"] for cell in energy.get("cells", [])):
        return None
    blocks: list[Block] = [Para(_ABOUT, quiet=True), Bullets(_grades(energy))]
    blocks.append(_requests(summary, energy))
    blocks.append(Para(_powered(energy), quiet=True))
    blocks += kept(run_dir, "energy_vs_km", "Joules of a request of every arm against km, by part")
    blocks += _measured(summary, energy)
    blocks += _savings(summary, energy)
    blocks += kept(run_dir, "tornado", "What each constant does to the joules", _TORNADO)
    alt = "What a kWh costs at both sites by hour, and what a request costs each way"
    for one in energy["follow_the_sun"]:
        blocks += _day(summary, one)
        blocks += kept(run_dir, _DRAWN[one["by"]], alt)
    return Section("energy", "Energy", blocks)


def _drill(summary: dict[str, Any], energy: dict[str, Any]) -> list[Block]:
    """Of all sites together: requests of a drill share their GPUs."""
    head = [
        "cell", "from first request to last answer s", "prefill s", "decode s", "idle s",
        "all sites J", "J per answer", "J per output token", "all sites gCO₂e", "mgCO₂e per answer",
    ]  # fmt: skip
    rows = [
        [
            label,
            *(words.number(one[name], 3) for name in ("duration_s", "prefill_s", "decode_s")),
            words.number(one["idle_s"], 3),
            f"{one['energy_j']:,.0f}",
            words.number(one["j_per_answer"], 1),
            words.number(one["j_per_output_token"], 2),
            _three(one["emissions_g"]),
            _three(1000 * one["emissions_g"] / one["answered"]),
        ]
        for label, one in _labelled(summary, energy["fleets"])
    ]
    alt = "What each constant does to the joules of an answer"
    return [
        Para(_ABOUT, quiet=True),
        Bullets(_grades(energy)),
        Table(head, rows, numbers=True),
        Para(f"{_FLEET} {_powered_alike(energy)}", quiet=True),
        *chart(lambda: plot_tornado.draw(summary), "tornado", alt, _TORNADO),
    ]


def _grades(energy: dict[str, Any]) -> list[str]:
    named: dict[str, list[str]] = {}
    for name, said in energy["grades"].items():
        named.setdefault(said, []).append(name)
    lines = [f"{', '.join(names)}: {said}" for said, names in named.items() if said != "used"]
    return [f"grade of this run: {energy['grade']}", *lines]


def _requests(summary: dict[str, Any], energy: dict[str, Any]) -> Table:
    arms = [arm for arm in words.ARM_TITLES if any(arm in one["arms"] for one in energy["cells"])]
    head = ["cell", *(f"{words.ARM_TITLES[arm]} J" for arm in arms)]
    head += [f"{words.ARM_TITLES[arm]} J per output token" for arm in arms]
    head += [f"{words.ARM_TITLES[arm]} mgCO₂e" for arm in arms]
    rows = [
        [
            label,
            *_each(one, arms, lambda arm: words.number(arm["energy_j"], 1)),
            *_each(one, arms, lambda arm: words.number(arm["j_per_output_token"], 2)),
            *_each(one, arms, lambda arm: f"{1000 * arm['emissions_g']:.3g}"),
        ]
        for label, one in _labelled(summary, energy["cells"])
    ]
    return Table(head, rows, numbers=True)


def _powered(energy: dict[str, Any]) -> str:
    """With which PUE and grams the cells are counted; a day has its mean."""
    said = dict.fromkeys(
        f"{site} PUE {power['pue']:g}, {power['carbon_intensity_g_per_kwh']:g} gCO₂e per kWh"
        for one in energy["cells"]
        for site, power in one["sites"].items()
    )
    return f"Counted with: {'; '.join(said)}. Each end of a link pays one half of it."


def _powered_alike(energy: dict[str, Any]) -> str:
    """The same of a drill, all of whose sites have the constants'."""
    pue, grams = (energy["constants"][name] for name in ("pue", "carbon_intensity_g_per_kwh"))
    return f"Counted with PUE {pue['value']:g} and {grams['value']:g} gCO₂e per kWh at every site."


def _each(
    cell: dict[str, Any], arms: list[str], show: Callable[[dict[str, Any]], str]
) -> list[str]:
    return [show(cell["arms"][arm]) if arm in cell["arms"] else words.NONE for arm in arms]


def _labelled(
    summary: dict[str, Any], cells: list[dict[str, Any]]
) -> list[tuple[str, dict[str, Any]]]:
    """Cells of ``energy`` under the names that the run's own cells have."""
    labels = {cell["cell"]: cell["label"] for cell in summary["cells"]}
    return [(labels[one["cell"]], one) for one in cells]


def _measured(summary: dict[str, Any], energy: dict[str, Any]) -> list[Block]:
    measured = energy["measured"]
    if measured is None:
        return []
    found = [
        (label, words.ARM_TITLES.get(arm, arm), data)
        for label, one in _labelled(summary, measured["cells"])
        for arm, data in one["arms"].items()
    ]
    names = list(dict.fromkeys(name for _, _, data in found for name in data))
    rows = [[label, arm, *(_three(data.get(name)) for name in names)] for label, arm, data in found]
    said = (
        f"By {measured['meter']}, of this machine and of {measured['of']}, which ran; not of what "
        "the run stands for. Mean of each request's time, of all sites together."
    )
    if measured["gpu_idle_w"] is not None:
        said += f" GPUs at rest: {measured['gpu_idle_w']:.0f} W."
    head = ["cell", "arm", *(_METERED.get(name, name) for name in names)]
    return [Heading("Metered", 3), Table(head, rows, numbers=True), Para(said, quiet=True)]


def _savings(summary: dict[str, Any], energy: dict[str, Any]) -> list[Block]:
    rows = []
    for label, one in _labelled(summary, energy["cells"]):
        saves = one["remote_hit_saves"]
        if saves is None:
            continue
        even = saves["break_even"]
        share = even["utilisation"]
        rows.append(
            [
                label,
                words.number(saves["saved_j"], 1),
                words.number(saves["saved_marginal_j"], 1),
                words.number(saves["saved_j_per_gb"], 1),
                words.number(even["lit_w"], 1),
                _three(even["hits_per_hour"], "never"),
                "never" if share is None else f"{100 * share:.3g} %",
            ]
        )
    if not rows:
        return []
    head = [
        "cell", "saved J", "at the margin J", "saved J per GB moved", "lit W",
        "break-even hits per hour", "break-even share of the line",
    ]  # fmt: skip
    return [
        Heading("What a remote hit saves", 3),
        Table(head, rows, numbers=True),
        Para(_SAVED, quiet=True),
    ]


def _day(summary: dict[str, Any], one: dict[str, Any]) -> list[Block]:
    by, unit, scale = _BY[one["by"]]
    head = [
        "cell",
        *_WAYS,
        "cheapest of each hour",
        "saved",
        "hours to fetch",
        "hours to serve there",
    ]
    rows = []
    for label, day in _labelled(summary, one["cells"]):
        best = [hour["best"] for hour in day["hours"]]
        saved = day["saved"]
        rows.append(
            [
                label,
                *(_three(scale * day["mean"][way]) for way in _WAYS),
                _three(scale * day["following"]),
                words.NONE if saved is None else f"{100 * saved:.2f} %",
                str(best.count("fetch here")),
                str(best.count("serve there")),
            ]
        )
    sources = "; ".join(f"{site}: {power['source']}" for site, power in one["sites"].items())
    said = (
        f"{unit}, mean of a day. A prompt arrives at {one['here']}, its prefix is cached at "
        f"{one['there']}. Saved: over the best of what is the same at every hour. {sources}."
    )
    return [
        Heading(f"Follow the sun, by {by}", 3),
        Table(head, rows, numbers=True),
        Para(said, quiet=True),
    ]


def _three(value: float | None, none: str = words.NONE) -> str:
    if value is None:
        return none
    # Three digits, and never a power of ten.
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
