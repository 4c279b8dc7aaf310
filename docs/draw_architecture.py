"""Draws ``docs/architecture.svg``, the picture of ``docs/architecture.md``.

    python docs/draw_architecture.py [FOLDER]

Writes ``architecture.svg`` into FOLDER (this one by default). With a FOLDER it also writes
``architecture.png``, to look at. Coordinates are pixels at 1000 wide, from the top left.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

WIDTH, HEIGHT = 1000, 812
INK, MUTED, LINE, PAPER = "#1f2430", "#646b7d", "#aab1c0", "#ffffff"
FIBRE, CABLE, CONTROL = "#2459b5", "#6f7788", "#c2571a"
HOST, GUEST, SITE, ROOM = "#f5f6f9", "#eef3fb", "#ffffff", "#f7f9fd"
GLASS, ACCESS, TABLE = "#dfeaff", "#fbfbfc", "#fdf3e7"


class Drawing:
    """A figure one unit of which is one pixel."""

    def __init__(self) -> None:
        self.figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), facecolor=PAPER)
        self.axes: Any = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_xlim(0, WIDTH)
        self.axes.set_ylim(HEIGHT, 0)
        self.axes.axis("off")

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, edge: str = LINE,
        line: float = 1.0, dashed: bool = False, round_: float = 7, z: float = 1,
    ) -> None:  # fmt: skip
        """A rounded rectangle from its top left corner."""
        self.axes.add_patch(
            FancyBboxPatch(
                (x, y), width, height, boxstyle=f"round,pad=0,rounding_size={round_}",
                facecolor=fill, edgecolor=edge, linewidth=line, zorder=z,
                linestyle=(0, (4, 3)) if dashed else "-",
            )
        )  # fmt: skip

    def text(
        self, x: float, y: float, words: str, size: float = 8.6, colour: str = INK,
        bold: bool = False, mono: bool = False, align: str = "left",
    ) -> None:  # fmt: skip
        """Words whose vertical middle is at y."""
        self.axes.text(
            x, y, words, fontsize=size, color=colour, ha=align, va="center", zorder=6,
            fontweight="bold" if bold else "normal", linespacing=1.35,
            family="DejaVu Sans Mono" if mono else "DejaVu Sans",
        )  # fmt: skip

    def room(
        self, x: float, y: float, width: float, height: float, name: str, said: str,
        fill: str = ROOM,
    ) -> None:  # fmt: skip
        """A box with a title and a line or two below it."""
        self.box(x, y, width, height, fill, z=3)
        self.text(x + 10, y + 14, name, 9, bold=True)
        self.text(x + 10, (y + 22 + y + height - 3) / 2, said, 8, MUTED)

    def line(
        self, points: list[tuple[float, float]], colour: str, width: float = 1.4,
        dashed: bool = False, arrow: str = "-|>", z: float = 4,
    ) -> None:  # fmt: skip
        """Straight pieces through ``points``, with an arrow head at the end."""
        style: Any = (0, (4, 2.6)) if dashed else "-"
        if len(points) > 2:
            xs, ys = zip(*points[:-1], strict=True)
            self.axes.plot(xs, ys, color=colour, linewidth=width, linestyle=style, zorder=z)
        self.axes.add_patch(
            FancyArrowPatch(
                points[-2], points[-1], arrowstyle=arrow, mutation_scale=10, color=colour,
                linewidth=width, linestyle=style, shrinkA=0, shrinkB=0, zorder=z,
            )
        )  # fmt: skip


def draw() -> Figure:
    """The whole picture."""
    d = Drawing()
    _host(d)
    _guest(d)
    for x, name in ((276, "a"), (718, "b")):
        _site(d, x, name)
    _fibre(d)
    _control(d)
    _legend(d)
    return d.figure


def _host(d: Drawing) -> None:
    d.box(12, 14, 212, 736, HOST)
    d.text(26, 34, "Host, without root", 9.4, bold=True)
    rooms = (
        (54, 62, "cli", "geokv run SCENARIO\nprogress, table, exit code"),
        (140, 62, "scenario", "strict models → cells, arms\nhash of the whole set-up"),
        (
            226,
            78,
            "vm",
            "slot, boot, output as it\ngrows, watchdog, end\n(runner.py ties it together)",
        ),
        (
            526,
            78,
            "measure",
            "reads records, nothing live:\nspans, gain, bound,\nenergy proxy, verdict",
        ),
        (
            634,
            94,
            "report",
            "table.csv  table.md  plots/\nlinks.json  summary.json\n"
            "requests.parquet\nhistory.jsonl  report.html",
        ),
    )
    for y, height, name, said in rooms:
        d.room(24, y, 188, height, name, said, PAPER)
    d.box(24, 378, 188, 112, TABLE, "#dcbf97", z=3)
    d.text(34, 394, "run folder", 9, bold=True)
    d.text(34, 444, "scenario.yaml\nmanifest.json\nrecords/*.jsonl\nlog.txt", 8, MUTED, mono=True)
    for top, bottom in ((116, 140), (202, 226), (304, 378), (490, 526), (604, 634)):
        d.line([(118, top), (118, bottom)], INK, 1.2)


def _guest(d: Drawing) -> None:
    # A second VM behind the first: they share the cells of a run.
    d.box(254, 8, 738, 736, "#dbe6f7", "#b9cbe8", z=0.5)
    d.box(246, 14, 738, 736, GUEST, "#9db4da", 1.2)
    d.text(
        262, 34, "Embedded VM: User-Mode Linux 6.12, virtual clock, one processor", 9.4, bold=True
    )
    d.text(972, 34, "vm.jobs of them share the cells", 8, MUTED, align="right")
    d.box(276, 54, 680, 68, PAPER, z=3)
    d.text(288, 70, "coordinator", 9, bold=True)
    d.text(386, 70, "python -m geokv.coordinator.run RUN_DIR PART PARTS", 7.6, MUTED, mono=True)
    d.text(
        288, 99,
        "builds the lab, forks sites and clients from one forkserver, then per cell: set links →\n"
        "check them → warm → prepare → every arm, every request → integrity → check them again",
        8, MUTED,
    )  # fmt: skip


def _site(d: Drawing, x: float, name: str) -> None:
    d.box(x, 180, 238, 378, SITE, "#8f99ad", 1.1, z=2)
    d.text(x + 12, 198, f"site {name}", 9.4, bold=True)
    d.text(x + 226, 198, "network namespace", 8, MUTED, align="right")
    table = "holds the directory's table" if name == "a" else "asks a's directory"
    d.room(x + 12, 214, 214, 46, "KV server, port 7000", "cache/substrate/tcp")
    d.room(
        x + 12,
        268,
        214,
        78,
        "cache",
        f"DRAM tier: pins, checksums\nlookup, fetch, store, publish\n{table}",
    )
    d.room(x + 12, 354, 214, 46, "worker", "one request from end to end")
    d.room(
        x + 12,
        408,
        214,
        78,
        "engine",
        "small model, real tokens\npaged pool, prefix tree\nGPU time charged, or real",
    )
    d.room(x + 12, 494, 214, 46, "API, port 8000", "OpenAI's HTTP, streaming")
    d.box(x, 624, 238, 86, ACCESS, "#8f99ad", 1.1, z=2)
    d.text(x + 12, 642, f"access of {name}", 9.4, bold=True)
    d.text(x + 226, 642, "network namespace", 8, MUTED, align="right")
    d.room(x + 12, 656, 214, 44, "load client", "takes TTFT where a user is")
    d.line([(x + 119, 624), (x + 119, 540)], CABLE, 2.2, arrow="<|-|>")
    d.text(x + 128, 591, "access cable", 8, CABLE)


def _fibre(d: Drawing) -> None:
    d.box(534, 180, 164, 206, GLASS, "#86a7de", 1.1, z=2)
    d.text(616, 198, "fibre a-b", 9.4, bold=True, align="center")
    d.text(616, 214, "network namespace", 8, MUTED, align="center")
    d.line([(502, 237), (730, 237)], FIBRE, 3, arrow="<|-|>")
    d.text(616, 252, "chunks, lookups", 8, FIBRE, align="center")
    d.room(
        544,
        266,
        144,
        108,
        "netem, twice",
        "one qdisc each way on\nthe ports of a bridge:\ndelay, rate ÷ S, queue,\n"
        "loss; changed live\nbetween cells",
        PAPER,
    )
    d.text(616, 404, "one such namespace per link", 8, MUTED, align="center")


def _control(d: Drawing) -> None:
    for x, side in ((395, 1), (837, -1)):
        d.line([(x, 122), (x, 180)], CONTROL, 1.5, dashed=True, arrow="<|-|>")
        align = "left" if side > 0 else "right"
        d.text(x + 9 * side, 151, "control socket (UNIX)", 8, CONTROL, align=align)
    d.line([(276, 88), (261, 88), (261, 678), (288, 678)], CONTROL, 1.5, dashed=True)
    d.line([(956, 88), (971, 88), (971, 678), (944, 678)], CONTROL, 1.5, dashed=True)
    d.text(616, 668, "pipes tell the clients\nwhat to ask", 8, CONTROL, align="center")
    d.line([(212, 246), (246, 246)], INK, 1.4)
    d.text(229, 235, "boot", 8, INK, align="center")
    for y, words in ((284, "steps"), (432, "hostfs")):
        d.line([(246, y), (212, y)], CONTROL, 1.5, dashed=True)
        d.text(229, y - 12, words, 8, CONTROL, align="center")


def _legend(d: Drawing) -> None:
    y = 782
    d.line([(24, y), (70, y)], FIBRE, 3, arrow="-")
    d.text(78, y, "emulated link: pays for distance and rate", 8.4)
    d.line([(352, y), (398, y)], CABLE, 2, arrow="-")
    d.text(406, y, "cable inside a site: no impairment", 8.4)
    d.line([(650, y), (696, y)], CONTROL, 1.5, dashed=True, arrow="-")
    d.text(704, y, "out of band: control and records, never on a link", 8.4)


def main() -> None:
    here = Path(__file__).resolve().parent
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else here
    with matplotlib.rc_context({"svg.hashsalt": "geokv", "svg.fonttype": "path"}):
        figure = draw()
        figure.savefig(folder / "architecture.svg", metadata={"Date": None, "Creator": None})
        if folder != here:
            figure.savefig(folder / "architecture.png", dpi=90)


if __name__ == "__main__":
    main()
