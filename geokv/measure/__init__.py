"""From the raw records of a run to numbers, judgements and a verdict. Reads files only."""

from geokv.measure.summary import summarise
from geokv.measure.verdict import EXIT_CODES

__all__ = ["EXIT_CODES", "summarise"]
