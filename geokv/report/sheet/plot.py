"""A drill on one time axis: TTFT of every request, faults shaded, and under it what sites held for
down and what they missed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from geokv.measure.drill.story import Asked, Down, Fault, Story
from geokv.report.sheet.svg import Drawing, text_width
from geokv.report.sheet.words import Words
from geokv.report.style import GRID, INK, MUTED

WIDTH = 980.0
_LEFT, _RIGHT, _PANEL = 138.0, 18.0, 250.0
_LANE, _BAND, _NAME_SIZE = 20.0, 17.0, 11.5
_SHADES = ("#fbe3cf", "#e6e0f4", "#d9ecf5", "#f6e3ea", "#e5efd9")
_SHADE_INKS = ("#9a4710", "#5b3f96", "#1f6080", "#97305a", "#49701c")
FATE_MARKS = {
    "remote": ("dot", "#2459b5"),
    "local": ("triangle", "#2a9d77"),
    "recomputed": ("square", "#c2571a"),
    "refused": ("plus", "#8e6bb8"),
    "failed": ("cross", "#b3262d"),
    "wrong": ("diamond", "#b3262d"),
    "unanswered": ("ring", "#b3262d"),
}
"""A shape of its own each: who does not see colours sees those. The dashboard has the same."""
_DOWN_COLOURS = {"peer-down": "#c2571a", "fenced": "#8e6bb8", "killed": "#5b6478"}
_MISS = "#8a6d1f"
_LOG_FROM = 12.0
"""Times that differ by more than this are shown on a logarithmic scale."""


def draw_timeline(story: Story, words: Words, title: str) -> str:
    """The SVG of one cell."""
    end_ms = max([story.end_ms, *(fault.healed_ms or 0.0 for fault in story.faults)])
    scale = (WIDTH - _LEFT - _RIGHT) / (end_ms or 1.0)

    def at(ms: float) -> float:
        return _LEFT + min(max(ms, 0.0), end_ms) * scale

    rows = _rows_of(story.faults, at, words)
    band_high = _BAND * (max(rows.values()) + 1) if rows else 0.0
    lost = [one for one in story.asked if one.ttft_ms is None]
    lanes = _down_lanes(story.downs)
    causes = sorted({one.cause for one in story.misses if one.t_ms >= 0})
    top = 40.0 + band_high + (_LANE if lost else 0.0)
    bottom = top + _PANEL
    under = bottom + 12 + _LANE * (len(lanes) + len(causes))
    high = under + 44
    drawing = Drawing(WIDTH, high, title)
    drawing.rect(0, 0, WIDTH, high, "#ffffff")
    _legend(drawing, story, words)
    _faults(drawing, story.faults, rows, at, words, under)
    y = _ttft_axis(drawing, story, words, top, bottom)
    for one in story.asked:
        _request(drawing, one, at, y, top, words)
    if lost:
        drawing.text(_LEFT - 8, top - 7, words.text["no_answer"], size=11, fill=MUTED, anchor="end")
    lane = bottom + 12
    for (site, peer, why), spans in lanes.items():
        _down_lane(drawing, site, peer, why, spans, at, lane, end_ms, words)
        lane += _LANE
    for cause in causes:
        _miss_lane(drawing, story, cause, at, lane, words)
        lane += _LANE
    _time_axis(drawing, at, end_ms, top, under, words)
    return drawing.to_svg()


def _legend(drawing: Drawing, story: Story, words: Words) -> None:
    """Of what there is, in one line."""
    seen = {one.fate for one in story.asked}
    x = _LEFT
    for fate, (shape, colour) in FATE_MARKS.items():
        if fate not in seen:
            continue
        count = sum(one.fate == fate for one in story.asked)
        said = f"{words.request_fates[fate]} ({count})"
        drawing.mark(shape, x + 4, 16, colour)
        drawing.text(x + 14, 20, said, size=12)
        x += 14 + text_width(said, 12) + 22


def _rows_of(faults: Sequence[Fault], at: Callable[[float], float], words: Words) -> dict[str, int]:
    """Fault → row of its name over the panel, so that no name stands on another."""
    ends: list[float] = []
    rows = {}
    for fault in sorted(faults, key=lambda one: _start(one) or 0.0):
        start = _start(fault)
        if start is None:
            continue
        width = text_width(_name(fault, words), _NAME_SIZE)
        x = _name_x(at(start), width)
        row = next((n for n, end in enumerate(ends) if end <= x), len(ends))
        ends[row : row + 1] = [x + width + 8]
        rows[fault.name] = row
    return rows


def _name(fault: Fault, words: Words) -> str:
    name = f"{fault.name} · {fault.target}" if fault.target else fault.name
    return name if fault.took_ms is not None else f"{name} ({words.text['did_not_fire']})"


def _name_x(x: float, width: float) -> float:
    """Where a name begins: beside its fault, and never beyond the edge."""
    return min(x + 4, WIDTH - _RIGHT - width)


def _start(fault: Fault) -> float | None:
    return fault.took_ms if fault.took_ms is not None else fault.asked_ms


def _faults(
    drawing: Drawing,
    faults: Sequence[Fault],
    rows: dict[str, int],
    at: Callable[[float], float],
    words: Words,
    bottom: float,
) -> None:
    """A band from taking effect to healing; a dashed line where it lasts no time."""
    names = []
    for number, fault in enumerate(sorted(faults, key=lambda one: _start(one) or 0.0)):
        start = _start(fault)
        if start is None:
            continue
        shade, ink = _SHADES[number % len(_SHADES)], _SHADE_INKS[number % len(_SHADES)]
        y = 34 + _BAND * rows[fault.name]
        name, until = _name(fault, words), fault.healed_ms
        said = f"{name}: {start:.3f} ms – {'…' if until is None else f'{until:.3f} ms'}"
        if fault.took_ms is not None and until is not None:
            drawing.rect(at(start), y, at(until) - at(start), bottom - y, shade, said, 0.7)
        else:
            drawing.line(at(start), y, at(start), bottom, ink, 1.3, "4 3")
        names.append((_name_x(at(start), text_width(name, _NAME_SIZE)), y + 12.5, name, ink))
    # Above all bands.
    for x, y, name, ink in names:
        drawing.text(x, y, name, size=_NAME_SIZE, fill=ink, weight=600)


def _ttft_axis(
    drawing: Drawing, story: Story, words: Words, top: float, bottom: float
) -> Callable[[float], float]:
    """Grid and labels; returns ms → y."""
    times = [one.ttft_ms for one in story.asked if one.ttft_ms is not None] or [1.0, 10.0]
    low, high = min(times), max(times)
    if high > low * _LOG_FROM and low > 0:
        floor, ceiling = math.log10(low / 1.15), math.log10(high * 1.15)
        ticks = [
            base * 10.0**power
            for power in range(math.floor(floor), math.ceil(ceiling) + 1)
            for base in (1, 2, 5)
            if floor <= math.log10(base * 10.0**power) <= ceiling
        ]

        def y(ms: float) -> float:
            return bottom - (math.log10(ms) - floor) / (ceiling - floor) * (bottom - top)
    else:
        step = nice_step(high * 1.08 / 5)
        ticks = [step * number for number in range(int(high * 1.08 / step) + 1)]

        def y(ms: float) -> float:
            return bottom - ms / (high * 1.08) * (bottom - top)

    for tick in ticks:
        drawing.line(_LEFT, y(tick), WIDTH - _RIGHT, y(tick), GRID)
        drawing.text(_LEFT - 8, y(tick) + 4, f"{tick:g}", size=11.5, fill=MUTED, anchor="end")
    drawing.text(_LEFT - 8, 20, words.text["ttft_axis"], size=12, fill=INK, anchor="end")
    return y


def _request(
    drawing: Drawing,
    one: Asked,
    at: Callable[[float], float],
    y: Callable[[float], float],
    top: float,
    words: Words,
) -> None:
    shape, colour = FATE_MARKS[one.fate]
    said = f"{one.request_id} @ {one.site}: {words.request_fates[one.fate]}"
    if one.ttft_ms is None:
        drawing.mark(shape, at(one.sent_ms), top - 11, colour, said)
    else:
        drawing.mark(shape, at(one.sent_ms), y(one.ttft_ms), colour, f"{said}, {one.ttft_ms} ms")


def _down_lanes(downs: Sequence[Down]) -> dict[tuple[str, str, str], list[Down]]:
    lanes: dict[tuple[str, str, str], list[Down]] = {}
    for one in downs:
        lanes.setdefault((one.site, one.peer, one.why), []).append(one)
    return lanes


def _down_lane(
    drawing: Drawing,
    site: str,
    peer: str,
    why: str,
    spans: Sequence[Down],
    at: Callable[[float], float],
    y: float,
    end_ms: float,
    words: Words,
) -> None:
    name = words.downs[why].format(site=site, peer=peer)
    drawing.text(_LEFT - 8, y + 13, name, size=11, fill=INK, anchor="end")
    drawing.line(_LEFT, y + 9, WIDTH - _RIGHT, y + 9, GRID)
    for span in spans:
        x = at(span.from_ms)
        until = end_ms if span.to_ms is None else span.to_ms
        said = f"{name}: {span.from_ms:.3f} – {until:.3f} ms"
        drawing.rect(x, y + 4, max(at(until) - x, 2.5), 10, _DOWN_COLOURS[why], said)


def _miss_lane(
    drawing: Drawing, story: Story, cause: str, at: Callable[[float], float], y: float, words: Words
) -> None:
    """A tick per site and millisecond, the higher the more."""
    # What preparing the drill missed, before its first request, is not part of the picture.
    marks = [one for one in story.misses if one.cause == cause and one.t_ms >= 0]
    name = words.text["missed"].format(cause=cause or "?")
    drawing.text(_LEFT - 8, y + 13, name, size=11, fill=INK, anchor="end")
    drawing.line(_LEFT, y + 9, WIDTH - _RIGHT, y + 9, GRID)
    most = max(one.count for one in marks)
    for one in marks:
        high = 5 + 10 * one.count / most
        said = f"{one.t_ms} ms, {one.site}: {one.count} × {cause}"
        drawing.rect(at(one.t_ms) - 1, y + 9 - high / 2, 2.2, high, _MISS, said)


def _time_axis(
    drawing: Drawing,
    at: Callable[[float], float],
    end_ms: float,
    top: float,
    y: float,
    words: Words,
) -> None:
    step = nice_step(end_ms / 1000 / 8)
    for number in range(int(end_ms / 1000 / step + 1e-9) + 1):
        x = at(number * step * 1000)
        drawing.line(x, y, x, y + 4, MUTED)
        shown = f"{number * step:.6g}"
        drawing.text(x, y + 18, shown, size=11.5, fill=MUTED, anchor="middle")
    drawing.line(_LEFT, y, WIDTH - _RIGHT, y, MUTED)
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    drawing.text(middle, y + 36, words.text["time_axis"], size=12, fill=INK, anchor="middle")


def nice_step(rough: float) -> float:
    """The next of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next(power * base for base in (1, 2, 5, 10) if power * base >= rough * (1 - 1e-9))
