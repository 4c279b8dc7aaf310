"""Nothing is said by colour alone: what lies in one stack differs by colour to every eye, or by
its hatching, on a light and on a dark ground; marks differ by their shape."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from geokv.report.page.theme import DARK
from geokv.report.sheet.plot import FATE_MARKS
from geokv.report.sheet.svg import Drawing
from geokv.report.style import HATCHES, PART_COLOURS, SPAN_COLOURS, TIER_COLOURS, stacked

STACKS = {"span": SPAN_COLOURS, "tier": TIER_COLOURS, "part": PART_COLOURS}
SEEN = {
    "all cones": np.eye(3),
    # Machado, Oliveira, Fernandes 2009, "A Physiologically-based Model for Simulation of Color
    # Vision Deficiency", IEEE TVCG 15(6), severity 1.0; of linear RGB.
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip
FAR = 15.0
"""CIE 1976 difference in Lab; 2.3 is just noticeable side by side, a legend lies apart."""
_TO_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)  # IEC 61966-2-1
_WHITE = np.array([0.95047, 1.0, 1.08883])


def lab(colour: str, seen: np.ndarray) -> np.ndarray:
    """What an eye makes of a colour."""
    srgb = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    xyz = _TO_XYZ @ np.clip(seen @ linear, 0, 1) / _WHITE
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("ground", ["light", "dark"])
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("eye", SEEN)
def test_parts_of_a_stack_are_told_apart(stack: str, eye: str, ground: str) -> None:
    colours = STACKS[stack]
    shown = {name: DARK[c] if ground == "dark" else c for name, c in colours.items()}
    alike = []
    for one, other in combinations(shown, 2):
        if HATCHES.get(one, "") != HATCHES.get(other, ""):
            continue
        far = float(np.linalg.norm(lab(shown[one], SEEN[eye]) - lab(shown[other], SEEN[eye])))
        if far < FAR:
            alike.append(f"{one} and {other}: {far:.1f}")
    assert not alike


def test_what_becomes_of_a_request_has_a_shape_of_its_own() -> None:
    drawn = {}
    for fate, (shape, _) in FATE_MARKS.items():
        drawing = Drawing(20, 20, "")
        drawing.mark(shape, 10, 10, "#000000")
        drawn[fate] = drawing.to_svg()
    alike = [pair for pair in combinations(drawn, 2) if drawn[pair[0]] == drawn[pair[1]]]
    assert not alike


def test_the_measure_knows_black_from_white() -> None:
    whole = np.eye(3)
    assert np.linalg.norm(lab("#ffffff", whole) - lab("#000000", whole)) == pytest.approx(100, 1e-3)
    assert np.linalg.norm(lab("#2459b5", whole) - lab("#2459b5", whole)) == 0


def test_a_part_is_filled_as_it_is_named() -> None:
    assert stacked("fetch", SPAN_COLOURS)["hatch"] == ""
    assert stacked("load", SPAN_COLOURS) == {
        "facecolor": SPAN_COLOURS["load"], "edgecolor": "white", "linewidth": 0.5,
        "hatch": HATCHES["load"],
    }  # fmt: skip
    assert set(HATCHES) <= {name for colours in STACKS.values() for name in colours}
