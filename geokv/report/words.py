"""Numbers and phrases as every table for people shows them."""

from __future__ import annotations

from typing import Any

NONE = "–"
VOID = "void"
ARM_TITLES = {"recompute": "recompute", "local_hit": "local hit", "remote_hit": "remote hit"}
GIB = 2**30


def number(value: float | None, digits: int) -> str:
    """Fixed digits, or a dash where there is no number."""
    return NONE if value is None else f"{value:.{digits}f}"


def ms(value: float | None) -> str:
    """Milliseconds to five digits or more: 98.90, 1234.5."""
    return number(value, 2 if value is None or value < 1000 else 1)


def ratio(value: float | None) -> str:
    """Four digits: 1.043, 12.34."""
    return number(value, 3 if value is None or value < 10 else 2)


def km(cell: dict[str, Any]) -> str:
    """The distance, with a star when it is out of range."""
    return f"{cell['km']:g}{' *' if cell['out_of_range'] else ''}"


def ttft(cell: dict[str, Any], arm: str) -> str:
    """Median TTFT in ms. A cell whose links were off shows none (INV-7)."""
    data = cell["arms"].get(arm)
    if data is None:
        return NONE
    return ms(data["ttft_p50_ms"]) if cell["valid"] else VOID


def percent(share: float | None) -> str:
    """A share as a percentage with one decimal; a dash for None."""
    return NONE if share is None else f"{100 * share:.1f} %"


def change(cell: dict[str, Any]) -> str:
    """Reading A, change of the gain against 0 km."""
    value = cell["gain_change_percent"]
    return NONE if value is None else f"{value:.2f} %"


def gib(cell: dict[str, Any]) -> str:
    """GiB one remote hit moves in the deployment the run stands for."""
    arm = cell["arms"].get("remote_hit")
    return NONE if arm is None else f"{arm['bytes_stands_for'] / GIB:.2f}"


def fetching(cell: dict[str, Any]) -> tuple[str, str, str, str, str]:
    """Of a remote hit: fetch ms, goodput Gb/s, chunks, round trips paid, % off the closed form."""
    arm = cell["arms"].get("remote_hit")
    if arm is None or arm["fetching"] is None:
        return (NONE,) * 5
    one = arm["fetching"]
    off = one["off_percent"]
    return (
        ms(one["time_ms"]),
        f"{one['goodput_gbps']:.3g}",
        f"{one['chunks']:,}",
        number(one["round_trips"], 1),
        NONE if off is None else f"{off:+.1f}",
    )


def setting(cell: dict[str, Any], path: str) -> str:
    """A swept value as it was written."""
    return str(cell["settings"].get(path, NONE))


def joules(cell: dict[str, Any], arm: str) -> str:
    """Energy proxy of one request."""
    data = cell["arms"].get(arm)
    if data is None or data["energy_j"] is None:
        return NONE
    if not cell["valid"]:
        return VOID
    value = data["energy_j"]
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def wrong(cell: dict[str, Any]) -> str:
    """Wrong answers of those compared."""
    return f"{cell['wrong']}/{cell['compared']}"


def other_settings(summary: dict[str, Any]) -> list[str]:
    """Swept paths that the km column does not already show."""
    paths = dict.fromkeys(path for cell in summary["cells"] for path in cell["settings"])
    distances = [path for path in paths if path.endswith(".km")]
    return [path for path in paths if len(distances) > 1 or path not in distances]


def short_title(path: str) -> str:
    """A swept path as the head of a narrow column: its last part, a word to a line."""
    return path.rsplit(".", 1)[-1].replace("_", "\n")


def asked(ran: dict[str, Any]) -> str:
    """What prompts are made of, and how long they are."""
    if "trace" in ran:
        return f"prompts of {ran['trace']}, {ran['prompt_tokens']:,} tokens (median)"
    return f"{prefixes(ran)} + question {ran['question_tokens']:,} tokens"


def prefixes(ran: dict[str, Any]) -> str:
    """How many prefixes of what length."""
    length = f"{ran['prefix_tokens']:,}"
    if "workload.prefix_tokens" in ran["swept"]:
        length = "swept"
    count = ran.get("prefixes", 1)
    return f"prefix {length}" if count == 1 else f"{count} prefixes of {length}"


def header(summary: dict[str, Any]) -> list[str]:
    """What ran and what it stands for, in a few lines."""
    ran = summary["ran"]
    scale = ran["byte_scale"]
    size = "full size" if scale == 1 else f"bytes and rates ÷ {scale}"
    document = f"document {ran['document']} · " if ran.get("document") else ""

    def one(path: str, shown: str, of_many: str) -> str:
        return of_many if path in ran["swept"] else shown

    chunks = one("deployment.chunk_tokens", f"of {ran['chunk_tokens']} tokens", "of swept size")
    streams = one("cache.substrate.streams", str(ran["streams"]), "swept")
    in_flight = one("cache.substrate.in_flight", str(ran["in_flight"]), "swept")
    return [
        f"{ran['model']} ran, stands for {ran['stands_for']} · GPU time {ran['compute']} · "
        f"S = {scale}: {size}",
        f"{ran['clock']} clock · kernel {ran['kernel']} · {seeds(ran)} · "
        f"{ran['requests']} requests per {'seed, ' if len(ran['seeds']) > 1 else ''}cell and arm"
        f"{_apart(ran)}",
        f"{document}{asked(ran)} · chunks {chunks}, {streams} streams × {in_flight} in flight",
    ]


def seeds(ran: dict[str, Any]) -> str:
    """``seed 1``; ``seeds 1–5``; ``seeds 1, 4, 9``."""
    found = ran["seeds"]
    if len(found) == 1:
        return f"seed {found[0]}"
    if found == list(range(found[0], found[0] + len(found))):
        return f"seeds {found[0]}–{found[-1]}"
    return f"seeds {', '.join(map(str, found))}"


def _apart(ran: dict[str, Any]) -> str:
    """What is asked before those that count."""
    return f" after {ran['warmup']} to warm up" if ran["warmup"] else ", none to warm up"


MARKS = {True: "✓", False: "✗", None: "?"}
VERDICT_SIGNS = {"pass": "✓", "fail": "✗", "invalid": "!", "unknown": "?"}
