"""The words of a drill sheet in one language; each language has a file with all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Language = Literal["en", "ja"]
LANGUAGES: tuple[Language, ...] = get_args(Language)


@dataclass(frozen=True)
class Words:
    """Tables from a name to what people read.

    Attributes:
        text: headings, titles of columns and phrases, some with ``{fields}``.
        verdicts: verdict → (word, sentence); ``pass-alone`` is a pass without a control.
        lines: judged line → (name, what it promises).
        promises: promise of an event or of a drill → sentence with ``{limit}``.
        spans: time after a fault → (name, from when it counts).
        faults: kind → sentence with the keys of the event as fields.
        changes: key of ``link-degrade`` → phrase with ``{value}``.
        request_fates, fetch_fates: fate → phrase.
        downs: why a site was down → name of its lane.
    """

    language: Language
    text: dict[str, str]
    verdicts: dict[str, tuple[str, str]]
    lines: dict[str, tuple[str, str]]
    promises: dict[str, str]
    spans: dict[str, tuple[str, str]]
    faults: dict[str, str]
    changes: dict[str, str]
    request_fates: dict[str, str]
    fetch_fates: dict[str, str]
    downs: dict[str, str]


def words_of(language: Language) -> Words:
    """The words of one language."""
    # Imported here: the files of the languages need the class above.
    from geokv.report.sheet import words_en, words_ja

    return {"en": words_en.WORDS, "ja": words_ja.WORDS}[language]
