"""The few shapes a drawing here needs, as SVG text that stays text."""

from __future__ import annotations

import unicodedata
from xml.sax.saxutils import escape, quoteattr

FONTS = (
    "system-ui, 'Noto Sans', 'Noto Sans CJK JP', 'Noto Sans JP', 'Hiragino Sans', 'Yu Gothic', "
    "'IPAexGothic', 'DejaVu Sans', sans-serif"
)
"""Those with Japanese glyphs stand behind the Latin ones: a browser takes each glyph from the
first that has it."""
_WIDE = frozenset("WF")


def text_width(text: str, size: float) -> float:
    """Roughly, in pixels: no font is at hand to measure with."""
    wide = sum(unicodedata.east_asian_width(sign) in _WIDE for sign in text)
    return size * (wide + 0.56 * (len(text) - wide))


class Drawing:
    """Shapes in the order in which they are drawn; coordinates are pixels from the top left."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self._title = width, height, title
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, w: float, h: float, fill: str, said: str = "",
        opacity: float = 1.0,
    ) -> None:  # fmt: skip
        """A filled box; ``said`` is shown under the mouse."""
        more = {"fill-opacity": opacity} if opacity < 1 else {}
        self._add("rect", said, x=x, y=y, width=max(w, 0.0), height=h, fill=fill, **more)

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str, width: float = 1.0,
        dash: str = "",
    ) -> None:  # fmt: skip
        """A straight line; ``dash`` as of SVG, ``4 3``."""
        more = {"stroke-dasharray": dash} if dash else {}
        self._add("line", "", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke,
                  **{"stroke-width": width, **more})  # fmt: skip

    def plate(self, x: float, y: float, w: float, h: float, fill: str) -> None:
        """A box with round corners, around its middle."""
        self._add("rect", "", x=x - w / 2, y=y - h / 2, width=w, height=h, rx=4, fill=fill)

    def pill(
        self, x: float, y: float, w: float, h: float, fill: str, stroke: str, width: float
    ) -> None:
        """A box with round ends and a border, around its middle."""
        self._add("rect", "", x=x - w / 2, y=y - h / 2, width=w, height=h, rx=h / 2, fill=fill,
                  stroke=stroke, **{"stroke-width": width})  # fmt: skip

    def mark(self, shape: str, x: float, y: float, colour: str, said: str = "") -> None:
        """``dot``, ``square``, ``triangle``, ``diamond``, ``plus``, ``cross`` or ``ring``, some 7
        pixels across."""
        if shape == "dot":
            self._add("circle", said, cx=x, cy=y, r=3.4, fill=colour)
        elif shape == "ring":
            self._add("circle", said, cx=x, cy=y, r=3.2, fill="#ffffff", stroke=colour,
                      **{"stroke-width": 1.8})  # fmt: skip
        elif shape == "square":
            self._add("rect", said, x=x - 3, y=y - 3, width=6, height=6, fill=colour)
        elif shape == "diamond":
            d = f"M{x:.1f} {y - 4.8:.1f}l4.8 4.8l-4.8 4.8l-4.8 -4.8z"
            self._add("path", said, d=d, fill=colour)
        elif shape == "triangle":
            d = f"M{x:.1f} {y - 4.3:.1f}l4.2 7.4h-8.4z"
            self._add("path", said, d=d, fill=colour)
        elif shape == "plus":
            d = f"M{x - 4:.1f} {y:.1f}h8m-4 -4v8"
            self._add("path", said, d=d, fill="none", stroke=colour, **{"stroke-width": 2})
        else:
            d = f"M{x - 3.4:.1f} {y - 3.4:.1f}l6.8 6.8m0 -6.8l-6.8 6.8"
            self._add("path", said, d=d, fill="none", stroke=colour, **{"stroke-width": 2})

    def text(
        self, x: float, y: float, text: str, *, size: float = 12, fill: str = "#1c2030",
        anchor: str = "start", weight: int = 400,
    ) -> None:  # fmt: skip
        """One line of text; ``anchor`` is ``start``, ``middle`` or ``end``, ``size`` pixels."""
        more = {"font-weight": weight} if weight != 400 else {}
        shown = _attributes(
            {"x": x, "y": y, "font-size": size, "fill": fill, "text-anchor": anchor, **more}
        )
        self._parts.append(f"<text{shown}>{escape(text)}</text>")

    def to_svg(self) -> str:
        """The whole drawing; nothing in it is fetched from anywhere."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}"'
            f' width="{self.width:g}" height="{self.height:g}" role="img"'
            f" font-family={quoteattr(FONTS)}>"
        )
        title = f"<title>{escape(self._title)}</title>"
        return "\n".join([head, title, *self._parts, "</svg>"]) + "\n"

    def _add(self, name: str, said: str, **attributes: object) -> None:
        shown = _attributes(attributes)
        inside = f"<title>{escape(said)}</title></{name}>" if said else ""
        self._parts.append(f"<{name}{shown}>{inside}" if said else f"<{name}{shown}/>")


def _attributes(values: dict[str, object]) -> str:
    shown = {
        name: f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
        for name, value in values.items()
    }
    return "".join(f" {name}={quoteattr(value)}" for name, value in shown.items())
