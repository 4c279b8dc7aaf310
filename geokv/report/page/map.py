"""The topology as a map: sites, what they do, and links with their km and kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import networkx
import numpy

from geokv.lab.topology import Topology, ends
from geokv.report.sheet.svg import Drawing, text_width
from geokv.report.style import INK, MUTED, SERIES

FEW_SITES = 4
"""So many fit a narrow map, which is still legible on a phone."""
_MARGIN = 96.0
_SITE = 17.0
_MOST_NAMED = 24
"""Links; of more than these only the shape is shown."""
_DASHES = ("", "7 4", "2 4", "10 3 2 3", "1 3", "12 5")


def draw_map(
    topology: Topology, roles: Mapping[str, str], lengths: Mapping[str, str], title: str
) -> str:
    """The SVG. Places are by shape, not by geography: short links are drawn shorter.

    Args:
        roles: site → what it does, under its name.
        lengths: link → its km as words, where they are not one number.
    """
    width = _width(len(topology.sites))
    places, high = _places(topology, width)
    drawing = Drawing(width, high, title)
    kinds = list(dict.fromkeys(link.kind for link in topology.links.values()))
    for name, link in topology.links.items():
        a, b = ends(name)
        number = kinds.index(link.kind)
        (x1, y1), (x2, y2) = places[a], places[b]
        drawing.line(
            x1, y1, x2, y2, SERIES[number % len(SERIES)], 2.4, _DASHES[number % len(_DASHES)]
        )
    if len(topology.links) <= _MOST_NAMED:
        for name, link in topology.links.items():
            a, b = ends(name)
            km = lengths.get(name, f"{link.km:g} km")
            label = f"{km} · {link.kind}"
            _label(drawing, places[a], places[b], label)
    small = len(topology.sites) > _MOST_NAMED
    for site, (x, y) in places.items():
        _site(drawing, site, roles.get(site, ""), x, y, small)
    if len(topology.links) > _MOST_NAMED:
        _kinds(drawing, kinds, high)
    return drawing.to_svg()


def _width(sites: int) -> float:
    if sites <= 2:
        return 440.0
    return 560.0 if sites <= FEW_SITES else 760.0


def _places(topology: Topology, width: float) -> tuple[dict[str, tuple[float, float]], float]:
    """Site → pixels, and how high the map is."""
    sites = list(topology.sites)
    if len(sites) == 1:
        return {sites[0]: (width / 2, 60.0)}, 130.0
    if len(sites) == 2:
        return {sites[0]: (_MARGIN, 60.0), sites[1]: (width - _MARGIN, 60.0)}, 130.0
    graph: networkx.Graph[str] = networkx.Graph()
    graph.add_nodes_from(sites)
    for name, link in topology.links.items():
        # The square root keeps a link of 3000 km from making all others one point.
        graph.add_edge(*ends(name), far=math.sqrt(link.km + 5.0))
    found = networkx.kamada_kawai_layout(graph, weight="far", pos=networkx.circular_layout(graph))
    spots = _lying([(float(x), float(y)) for x, y in (found[site] for site in sites)])
    wide, tall = (float(side) or 1.0 for side in spots.max(axis=0) - spots.min(axis=0))
    inner = width - 2 * _MARGIN
    high = min(max(inner * tall / wide, 60.0), 400.0)
    spots = (spots - spots.min(axis=0)) * (inner / wide, high / tall) + (_MARGIN, 52.0)
    places = {site: (float(x), float(y)) for site, (x, y) in zip(sites, spots, strict=True)}
    return places, high + 116.0


def _lying(spots: list[tuple[float, float]]) -> numpy.ndarray[tuple[int, ...], numpy.dtype[Any]]:
    """Turned so that they spread most from left to right, the first of them on the left."""
    centred = numpy.array(spots) - numpy.mean(spots, axis=0)
    _, _, axes = numpy.linalg.svd(centred)
    turned = centred @ axes.T
    return numpy.asarray(turned * [-1.0 if side > 0 else 1.0 for side in turned[0]])


def _site(drawing: Drawing, site: str, role: str, x: float, y: float, small: bool) -> None:
    if small:
        drawing.mark("dot", x, y, INK, site)
        return
    wide = max(2 * _SITE, text_width(site, 15) + 20)
    drawing.pill(x, y, wide, 2 * _SITE, "#ffffff", INK, 1.8)
    drawing.text(x, y + 5, site, size=15, fill=INK, anchor="middle", weight=600)
    if role:
        drawing.plate(x, y + _SITE + 16, text_width(role, 11.5) + 8, 16, "#ffffff")
        drawing.text(x, y + _SITE + 20, role, size=11.5, fill=MUTED, anchor="middle")


def _label(
    drawing: Drawing, start: tuple[float, float], end: tuple[float, float], label: str
) -> None:
    """On the middle of its link, on a plate that hides the line behind it."""
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    drawing.plate(x, y, text_width(label, 12.5) + 14, 20, "#ffffff")
    drawing.text(x, y + 4.5, label, size=12.5, fill=INK, anchor="middle", weight=600)


def _kinds(drawing: Drawing, kinds: list[str], high: float) -> None:
    """Which line is which, where links have no room for their names."""
    x = 20.0
    for number, kind in enumerate(kinds):
        drawing.line(
            x, high - 16, x + 34, high - 16, SERIES[number % len(SERIES)], 2.4,
            _DASHES[number % len(_DASHES)],
        )  # fmt: skip
        drawing.text(x + 42, high - 12, kind, size=12.5, fill=INK)
        x += 62 + text_width(kind, 12.5)
