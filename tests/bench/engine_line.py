"""One line of the engine benchmark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """What was measured, and the bar it has to reach (None: for information)."""

    what: str
    ours: str
    against: str
    ratio: float
    least: float | None = None
    most: float | None = None
    percent: bool = False

    @property
    def holds(self) -> bool:
        """Whether the ratio reaches the bar."""
        return (self.least is None or self.ratio >= self.least) and (
            self.most is None or self.ratio <= self.most
        )

    @property
    def bar(self) -> str | None:
        """The bar as people write it."""
        if self.least is not None:
            return f"≥ {self._format(self.least)}"
        return None if self.most is None else f"≤ {self._format(self.most)}"

    @property
    def shown(self) -> str:
        """The ratio as people write it."""
        return self._format(self.ratio)

    def _format(self, value: float) -> str:
        return f"{100 * value:.2f} %" if self.percent else f"{value:.2f}"
