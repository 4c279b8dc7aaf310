"""What is asked: one file per kind."""

from typing import Annotated

from pydantic import Field

from geokv.scenario.workload.document import Document, TextFile
from geokv.scenario.workload.shared_prefix import SharedPrefix
from geokv.scenario.workload.stream import Stream
from geokv.scenario.workload.working_set import WorkingSet

Workload = Annotated[SharedPrefix | Document | WorkingSet | Stream, Field(discriminator="kind")]

__all__ = ["Document", "SharedPrefix", "Stream", "TextFile", "WorkingSet", "Workload"]
