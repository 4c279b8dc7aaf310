"""What sheets and pages are made of, whatever they are written as."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Ground = Literal["any", "light"]


@dataclass(frozen=True)
class Heading:
    """A heading; ``level`` 2 is a section's."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Para:
    """A paragraph; ``quiet`` is small print."""

    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list without an order."""

    items: list[str]


@dataclass(frozen=True)
class Table:
    """Without titles in ``head`` it is a list of facts, whose first column names them.

    ``marks``: of each row True, False, None (cannot be known) or ``""`` for no mark.
    """

    head: list[str]
    rows: list[list[str]]
    marks: list[bool | str | None] = field(default_factory=list)
    numbers: bool = False
    """Whether every column but the first is made of numbers."""
    tones: list[str] = field(default_factory=list)
    """Of each row ``quiet`` (shown for comparison), ``bad`` or nothing."""
    caption: str = ""
    groups: list[tuple[str, str]] = field(default_factory=list)
    """Of each column (heading over it and its neighbours, title under that), where a format can
    show both; a column without a heading keeps its title of ``head``."""


@dataclass(frozen=True)
class Code:
    """Lines as they are, and what they are."""

    lines: list[str]
    said: str = ""


@dataclass(frozen=True)
class Figure:
    """``file``: where in the run folder the same drawing lies. ``alt``: what it shows, for who
    cannot see it; without one its ``said`` stands for it."""

    svg: str
    file: str
    said: str
    alt: str = ""
    ground: Ground = "any"
    """``light`` where colours are numbers and a dark page must not change them."""
    whole: bool = False
    """Made smaller on a narrow screen, where others keep their size and scroll."""


@dataclass(frozen=True)
class Cards:
    """A few numbers that matter most: (name, value, whether it is bad)."""

    items: list[tuple[str, str, bool]]


@dataclass(frozen=True)
class Links:
    """Files beside the page: (path from the run folder, what it holds)."""

    items: list[tuple[str, str]]


@dataclass(frozen=True)
class Fold:
    """Something long, behind one line that names it; open on paper."""

    title: str
    blocks: list[Block]


Block = Heading | Para | Bullets | Table | Code | Figure | Cards | Links | Fold


@dataclass(frozen=True)
class Sheet:
    """A whole page: its head, and its blocks in order."""

    language: str
    title: str
    kicker: str
    question: str
    verdict: str
    """The word of the code: pass, fail, invalid, unknown."""
    verdict_word: str
    verdict_said: str
    blocks: list[Block]
    footer: str
