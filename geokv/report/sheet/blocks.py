"""What a sheet is made of, whatever it is written as."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Para:
    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Bullets:
    items: list[str]


@dataclass(frozen=True)
class Table:
    """``marks``: of each row True, False, None (cannot be known) or ``""`` for no mark."""

    head: list[str]
    rows: list[list[str]]
    marks: list[bool | str | None] = field(default_factory=list)
    numbers: bool = False
    """Whether every column but the first is made of numbers."""


@dataclass(frozen=True)
class Code:
    lines: list[str]
    said: str = ""


@dataclass(frozen=True)
class Figure:
    """``file``: where in the run folder the same drawing lies."""

    svg: str
    file: str
    said: str


@dataclass(frozen=True)
class Cards:
    """A few numbers that matter most: (name, value, whether it is bad)."""

    items: list[tuple[str, str, bool]]


Block = Heading | Para | Bullets | Table | Code | Figure | Cards


@dataclass(frozen=True)
class Sheet:
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
