"""A sweep in code, its table as a pandas frame, and a plot of it.

python scenarios/sweep.py
"""

from __future__ import annotations

import matplotlib.pyplot as plt

from geokv import Scenario, run

if __name__ == "__main__":
    scenario = (
        Scenario("smoke")
        .with_(name="rate_and_distance", arms=["recompute", "remote-hit"])
        .sweep("links.a-b.rate", ["10G", "100G"])
        .sweep("links.a-b.km", [0, 50, 100])
    )
    result = run(scenario)
    print(result.verdict, *result.reasons, sep="\n  ")

    table = result.table.set_index(["links.a-b.rate", "km"])
    print(table[["recompute_ttft_p50_ms", "remote_hit_ttft_p50_ms", "gain"]])

    lines = table["remote_hit_ttft_p50_ms"].unstack(0)
    lines["recompute"] = table["recompute_ttft_p50_ms"].groupby("km").first()
    lines.plot(
        style=["o-", "s-", "k--"], xlabel="km", ylabel="TTFT, ms", title=result.scenario.title
    )
    plt.savefig(result.folder / "plots" / "own_plot.svg")
    print(f"plot: {result.folder}/plots/own_plot.svg")
