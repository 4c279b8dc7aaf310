"""A real text as shared prefix, real questions behind it, one at a time."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from geokv.config import Strict
from geokv.units import Seconds


class TextFile(Strict):
    """A text and the file it came from. Written as the path alone, beside the scenario.

    A resolved scenario keeps the text itself, so that a run can be repeated from its folder.
    """

    file: str
    content: Annotated[str, Field(min_length=1)] | None = None
    """The text itself; read from ``file`` on loading unless it is written here."""

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, data: Any) -> Any:
        return {"file": data} if isinstance(data, str) else data

    @property
    def words(self) -> str:
        """The text as prompts carry it, without white space around it."""
        return (self.content or "").strip()


class Document(Strict):
    """``provider`` has read the document before; ``asker`` answers questions about it.

    Every arm is asked the same questions, each once. Answers end where the model ends
    them, at the latest after ``output_tokens``.
    """

    kind: Literal["document"]
    provider: str
    asker: str
    text: TextFile
    questions: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    template: Literal["plain", "chat"] = "plain"
    """``plain``: the text, ``Question:`` and ``Answer:``, and an answer of one line; ``chat``:
    the model's own chat template around text and question."""
    foreign: TextFile | None = None
    """Whose KV arm ``control-foreign`` puts in place of the document's; as long as it at least."""
    output_tokens: Annotated[int, Field(ge=1)] = 32
    idle: Annotated[Seconds, Field(ge=0, le=3600)] = 0.0
    """Pause before each request."""
    deadline: Annotated[Seconds, Field(gt=0, le=3600)] = 30.0
    """Every request ends by then, with an answer or a clear error."""

    @property
    def requests(self) -> int:
        """Measured requests per cell and arm."""
        return len(self.questions)

    @property
    def warmup(self) -> int:
        """None: a question asked before would be found in the cache, not only its prefix."""
        return 0
