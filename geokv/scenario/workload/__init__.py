"""What is asked: one file per kind."""

from typing import Annotated

from pydantic import Field

from geokv.scenario.workload.document import Document, TextFile
from geokv.scenario.workload.shared_prefix import SharedPrefix
from geokv.scenario.workload.stream import Stream
from geokv.scenario.workload.trace import Trace
from geokv.scenario.workload.working_set import WorkingSet

Workload = Annotated[
    SharedPrefix | Document | WorkingSet | Stream | Trace, Field(discriminator="kind")
]
OpenLoop = Stream | Trace
"""Requests that come when they are due, whatever became of those before: what a drill asks."""

__all__ = [
    "Document",
    "OpenLoop",
    "SharedPrefix",
    "Stream",
    "TextFile",
    "Trace",
    "WorkingSet",
    "Workload",
]
