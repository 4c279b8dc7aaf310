"""Every site knows its own chunks only, so nothing is ever shared."""

from typing import Literal

from geokv.config import Strict


class LocalDirectory(Strict):
    """Each site knows only itself: nothing is shared."""

    kind: Literal["local"]
