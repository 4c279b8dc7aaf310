"""The seven gaps that a survey of KV-cache systems found in what is published about them, each
measured in every run.

Jie Li, Tongyang Wang and Yong Chen, "From Tensor Buffer to Distributed Memory Hierarchy",
arXiv 2607.02574 (2026): MG1 to MG7. What each number means is in docs/measures.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from geokv.measure.gaps import access, attribution, completion, metadata, reuse, slack, trace
from geokv.measure.gaps.served import CellView, drill_views, measured_views

__all__ = ["CellView", "drill_views", "gaps", "measured_views"]


def gaps(views: Sequence[CellView], kv_bytes_per_token: int) -> dict[str, Any]:
    """``gaps`` of ``summary.json``: ``mg1`` to ``mg7``, each with rows that name their cell:
    ``groups`` has one per group of requests (an arm; all, of a drill), ``cells`` one per cell.

    Args:
        kv_bytes_per_token: of the deployment the run stands for.
    """

    def groups(rows: Callable[[CellView], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        return [row for view in views for row in rows(view)]

    return {
        "mg1": {"groups": groups(access.rows)},
        "mg2": {"groups": groups(metadata.rows), "cells": [metadata.cell(view) for view in views]},
        "mg3": {"groups": groups(completion.rows)},
        "mg4": {
            "groups": groups(lambda view: reuse.rows(view, kv_bytes_per_token)),
            "cells": [reuse.cell(view) for view in views],
        },
        "mg5": {"groups": groups(slack.rows)},
        "mg6": {"groups": groups(attribution.rows)},
        "mg7": {"cells": [trace.cell(view) for view in views]},
    }
