"""Who knows which chunk is where: one file per kind of directory."""

from typing import Annotated

from pydantic import Field

from geokv.scenario.directory.central import CentralDirectory
from geokv.scenario.directory.local import LocalDirectory

Directory = Annotated[CentralDirectory | LocalDirectory, Field(discriminator="kind")]

__all__ = ["CentralDirectory", "Directory", "LocalDirectory"]
