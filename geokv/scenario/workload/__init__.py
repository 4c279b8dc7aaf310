"""What is asked: one file per kind."""

from typing import Annotated

from pydantic import Field

from geokv.scenario.workload.document import Document, TextFile
from geokv.scenario.workload.shared_prefix import SharedPrefix

Workload = Annotated[SharedPrefix | Document, Field(discriminator="kind")]

__all__ = ["Document", "SharedPrefix", "TextFile", "Workload"]
