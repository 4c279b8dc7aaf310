"""What a scenario is about, in another language."""

from __future__ import annotations

from geokv.config import Strict


class Translation(Strict):
    """Title and question in another language."""

    title: str
    question: str
