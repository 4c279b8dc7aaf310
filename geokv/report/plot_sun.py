"""Follow the sun: what a kWh costs at both sites over a day, and what a request costs each way."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from geokv.report.plot_panels import about, wrapped
from geokv.report.style import INK, MUTED

WAY_STYLES = {
    "compute here": ("#c2571a", "s"),
    "fetch here": ("#2459b5", "o"),
    "serve there": ("#2a7f62", "^"),
}
_SHADES = {"compute here": "#fbe3cf", "fetch here": "#d9ecf5", "serve there": "#e5efd9"}
_SITE_STYLES = ((INK, "-"), (MUTED, (0, (4, 2))))
_KWH = {
    "carbon_intensity_g_per_kwh": "gCO₂e per kWh",
    "price_per_kwh": "price per kWh",
}
_COST = {"carbon_intensity_g_per_kwh": ("mgCO₂e per request", 1000.0),
         "price_per_kwh": ("price per 1,000 requests", 1000.0)}  # fmt: skip


def draw_carbon(summary: dict[str, Any]) -> Figure | None:
    """By grams of CO2 equivalent; None where the sites do not say them."""
    return _draw(summary, "carbon_intensity_g_per_kwh")


def draw_price(summary: dict[str, Any]) -> Figure | None:
    """By money; None where the sites do not say it."""
    return _draw(summary, "price_per_kwh")


def _draw(summary: dict[str, Any], by: str) -> Figure | None:
    """A day of the farthest cell in range."""
    follow = summary.get("energy", {}).get("follow_the_sun") or []
    one = next((one for one in follow if one["by"] == by), None)
    if one is None:
        return None
    out = {cell["cell"] for cell in summary["cells"] if cell["out_of_range"]}
    near = [cell for cell in one["cells"] if cell["cell"] not in out] or one["cells"]
    day = max(near, key=lambda cell: cell["km"])
    figure = Figure(figsize=(8.6, 5.9))
    upper, lower = figure.subplots(
        2, 1, sharex=True,
        gridspec_kw={"left": 0.095, "right": 0.975, "bottom": 0.1, "top": 0.76, "hspace": 0.28,
                     "height_ratios": [1, 1.5]},
    )  # fmt: skip
    handles = _power(upper, one)
    label, scale = _COST[one["by"]]
    hours = [hour["hour"] for hour in day["hours"]]
    shown = {way for hour in day["hours"] for way in (hour["best"],)}
    for hour in day["hours"]:
        for axes in (upper, lower):
            axes.axvspan(
                hour["hour"] - 0.5, hour["hour"] + 0.5, color=_SHADES[hour["best"]], linewidth=0,
                zorder=0,
            )  # fmt: skip
    # Computing costs several times as much as the rest: with it to scale, nothing else is seen.
    tall = min(hour["costs"]["compute here"] for hour in day["hours"])
    other = max(
        hour["costs"][way] for hour in day["hours"] for way in ("fetch here", "serve there")
    )
    ways = [way for way in WAY_STYLES if way != "compute here" or tall < 2 * other]
    for way in ways:
        colour, marker = WAY_STYLES[way]
        (line,) = lower.plot(
            hours, [scale * hour["costs"][way] for hour in day["hours"]], color=colour,
            marker=marker, markersize=4.5, linewidth=1.5, zorder=3, label=way,
        )  # fmt: skip
        handles.append(line)
    lower.set_ylim(bottom=min(0, lower.get_ylim()[0]))
    lower.set_ylabel(label)
    lower.set_xlabel("hour of the day, UTC")
    lower.set_xlim(-0.5, 23.5)
    lower.set_xticks(range(0, 24, 3))
    lower.grid(axis="x", visible=False)
    if "compute here" not in ways:
        mean = scale * day["mean"]["compute here"]
        lower.text(
            23.3, lower.get_ylim()[1] * 0.04, f"compute here: {mean:,.3g}, off the scale",
            ha="right", fontsize=8.5, color=WAY_STYLES["compute here"][0],
        )  # fmt: skip
    handles += [Patch(color=_SHADES[way]) for way in WAY_STYLES if way in shown]
    labels = [str(handle.get_label()) for handle in handles if isinstance(handle, Line2D)]
    labels += [f"hours to {way}" for way in WAY_STYLES if way in shown]
    figure.legend(
        handles, labels, loc="upper left", bbox_to_anchor=(0.085, 0.862), fontsize=8.5,
        ncols=(len(labels) + 1) // 2, handlelength=1.8, columnspacing=1.2,
    )  # fmt: skip
    title = f"Follow the sun: a prompt at {one['here']}, its prefix cached at {one['there']}"
    figure.text(0.095, 0.955, title, fontsize=13, fontweight="bold", va="center")
    words = f"{day['km']:g} km · {about(summary)}"
    figure.text(0.095, 0.9, wrapped(words), fontsize=8, color=MUTED, va="center")
    return figure


def _power(axes: Any, one: dict[str, Any]) -> list[Any]:
    """What a kWh costs at each site."""
    handles = []
    for (site, power), (colour, dashes) in zip(one["sites"].items(), _SITE_STYLES, strict=False):
        (line,) = axes.plot(
            range(len(power["by_hour"])), power["by_hour"], color=colour, linestyle=dashes,
            linewidth=1.6, zorder=3, label=f"power at {site}",
        )  # fmt: skip
        handles.append(line)
    axes.set_ylim(bottom=min(0, *(min(power["by_hour"]) for power in one["sites"].values())))
    axes.set_ylabel(_KWH[one["by"]])
    axes.grid(axis="x", visible=False)
    return handles
