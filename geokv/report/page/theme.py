"""Drawings inside a page: part of it, named, and legible on a light and on a dark ground."""

from __future__ import annotations

import re
from html import escape

from markupsafe import Markup

from geokv.report.sheet.blocks import Figure

DARK = {
    "#1f2430": "#e8ebf3", "#1c2030": "#e8ebf3", "#000000": "#e8ebf3", "#5f6679": "#a6aec1",
    "#e6e8ee": "#2c3342", "#f6f7fa": "#1f2530", "#ffffff": "#171c26", "#f0f1f5": "#262c39",
    # Series, arms and spans.
    "#2459b5": "#82abff", "#2a7f62": "#56c29b", "#2a9d77": "#56c29b", "#c2571a": "#f2955c",
    "#8e6bb8": "#bd9fe6", "#b58a1f": "#dcb651", "#8a6d1f": "#d3b05a", "#5b6478": "#a0a9bd",
    "#b9bfcc": "#747d92", "#7fa8e0": "#b4cdf7", "#57b0a4": "#7fd3c7", "#e2b04a": "#f0c86c",
    "#b3262d": "#ff8a8f",
    # Bands of faults, and their names.
    "#fbe3cf": "#4a2d17", "#e6e0f4": "#352b52", "#d9ecf5": "#163b4d", "#f6e3ea": "#4a2436",
    "#e5efd9": "#2c3d1c", "#9a4710": "#f5b184", "#5b3f96": "#c6b2f2", "#1f6080": "#8fcbe8",
    "#97305a": "#f2a3c0", "#49701c": "#b5d68b",
}  # fmt: skip
"""Every colour that our drawings use → its twin on a dark ground, of the same hue."""

_STYLED = re.compile(r"(fill|stroke|stop-color): ?(#[0-9a-f]{6})")
_GROUND = re.compile(
    r'(<g id="(?:figure|axes)_\d+">\s*<g id="patch_\d+">\s*<path d="[^"]*" style="fill: )#ffffff'
    r'|(<rect x="0" y="0" [^>]*fill=")#ffffff'
)
"""What a figure and its axes are drawn on, by matplotlib and by us."""
_IDS = re.compile(r"""(?<=\sid=")([^"]+)(?=")""")
_USES = re.compile(r"""(url\(#|href="#)([^")]+)""")


def _name(colour: str) -> str:
    return f"--c{colour.removeprefix('#')}"


def colour_rules() -> tuple[str, str, str]:
    """CSS: the variables on a light ground, on a dark one, and rules for drawn attributes."""
    light = "".join(f"{_name(colour)}:{colour};" for colour in DARK)
    dark = "".join(f"{_name(colour)}:{twin};" for colour, twin in DARK.items())
    rules = "".join(
        f'.drawing [{what}="{colour}"]{{{what}:var({_name(colour)})}}'
        for colour in DARK
        for what in ("fill", "stroke")
    )
    return light, dark, rules


def inlined(figure: Figure, prefix: str) -> Markup:
    """The drawing for inside a page.

    Its colours become variables with twins on a dark ground, its ids begin with ``prefix``, which
    makes them unique on the page, and it gets the figure's ``alt`` as its name. What only a file
    of its own needs is left out: styles for every element (``*``), and its ground, which would
    hide the shadow of a drawing that scrolls.
    """
    svg = figure.svg[figure.svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style[^>]*>\*\{[^}]*\}</style>", "", svg)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = _GROUND.sub(lambda found: f"{found[1] or found[2]}none", svg)
    svg = svg.replace("xlink:href=", "href=")
    svg = _IDS.sub(lambda found: f"{prefix}-{found[1]}", svg)
    svg = _USES.sub(lambda found: f"{found[1]}{prefix}-{found[2]}", svg)
    svg = _STYLED.sub(_variable, svg)
    # Text without a colour of its own is black in a file, and the page's here.
    head, _, rest = svg.partition(">")
    size = re.search(r'viewBox="([^"]+)"', head)
    fonts = re.search(r'font-family="[^"]+"', head)
    name = escape(figure.alt or figure.said or figure.file)
    kept = " ".join([f'viewBox="{size[1]}"' if size else "", fonts[0] if fonts else ""]).strip()
    return Markup(f'<svg {kept} role="img" aria-label="{name}">{rest}')


def _variable(found: re.Match[str]) -> str:
    colour = found[2]
    return f"{found[1]}:var({_name(colour)})" if colour in DARK else found[0]
