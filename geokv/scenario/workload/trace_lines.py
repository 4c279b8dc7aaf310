"""Lines of a trace: Mooncake's format (FAST'25 release), and what ours add.

``timestamp`` is ms from the start, lengths are tokens, and a hash id stands for a block of the
prompt *and all before it*. Where ids stand for blocks alone (Bailian) nothing changes: two prompts
share what they share from the start. Keys that are not known here are passed over, so traces of
others are read as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

import msgspec

from geokv.units import NS_PER_MS

PREPARE = "prepare"
SETUP = re.compile(
    r"(settle|forget|drop) [a-z][a-z0-9-]*|reuse [a-z][a-z0-9-]* (none|local|remote)"
)
"""What may be done to a site before a request (``coordinator.drill.setup``)."""
_OWN_TENANT = re.compile(r"tenant-(\d{1,4})")


class TraceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    Attributes:
        block_tokens: of its blocks; None where the file does not say.
        due_ns: when it is due, from the first line of its cell on; more exact than ``timestamp``.
        group: ``prepare`` only fills caches.
        type: what Bailian calls a category.
        setup: done to sites before it is sent, in order.
    """

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int | str]
    block_tokens: int | None = None
    due_ns: int | None = None
    cell: int = 0
    site: str | None = None
    tenant: str | None = None
    session: str | int | None = None
    group: str = ""
    category: str | None = None
    type: str | None = None
    warmup: bool = False
    setup: list[str] = []

    @property
    def at_ns(self) -> int:
        """When it comes, on the clock of its file."""
        return round(self.timestamp * NS_PER_MS) if self.due_ns is None else self.due_ns

    @property
    def prepares(self) -> bool:
        """Whether it is sent to fill caches, and not measured."""
        return self.group == PREPARE


@lru_cache(maxsize=8)
def read_lines(text: str, block_tokens: int) -> tuple[TraceLine, ...]:
    """All lines of a trace in the order they come.

    Args:
        block_tokens: of lines that do not say theirs.

    Raises:
        ValueError: ``line 3: …``; or there is none.
    """
    decoder = msgspec.json.Decoder(TraceLine)
    found: list[TraceLine] = []
    for number, row in enumerate(text.splitlines(), start=1):
        if not row.strip():
            continue
        try:
            line = decoder.decode(row)
        except msgspec.MsgspecError as error:
            raise ValueError(f"line {number}: not a request of a trace ({error})") from None
        problem = _problem(line, line.block_tokens or block_tokens)
        if problem:
            raise ValueError(f"line {number}: {problem}")
        found.append(line)
    if not found:
        raise ValueError("has no request")
    return tuple(sorted(found, key=lambda line: line.at_ns))


def _problem(line: TraceLine, size: int) -> str:
    if line.timestamp < 0 or (line.due_ns or 0) < 0:
        return "timestamp: must be ≥ 0"
    if line.input_length < 1:
        return f"input_length: must be ≥ 1, got {line.input_length}"
    if size < 1:
        return f"block_tokens: must be ≥ 1, got {size}"
    whole, rest = divmod(line.input_length, size)
    if len(line.hash_ids) not in (whole, whole + bool(rest)):
        return (
            f"hash_ids: {line.input_length} tokens are {whole + bool(rest)} blocks of {size}, got "
            f"{len(line.hash_ids)}"
        )
    for op in line.setup:
        if not SETUP.fullmatch(op):
            return f"setup: unknown step {op!r}"
    return ""


def in_step(lines: Sequence[TraceLine], speed: float, spread_ns: int) -> list[int]:
    """When each line comes, ns from the first on.

    Args:
        speed: how many times faster than written.
        spread_ns: over which lines of the same time are spread, evenly and in their order, at
            most until the next time; for traces whose clock ticks slowly.
    """
    ticks = [(at_ns, len(list(tick))) for at_ns, tick in groupby(line.at_ns for line in lines)]
    first = lines[0].at_ns
    times: list[int] = []
    for number, (at_ns, alike) in enumerate(ticks):
        room_ns = ticks[number + 1][0] - at_ns if number + 1 < len(ticks) else spread_ns
        over_ns = min(spread_ns, room_ns)
        for place in range(alike):
            times.append(round((at_ns - first + over_ns * place // alike) / speed))
    return times


def tenant_numbers(lines: Sequence[TraceLine]) -> dict[str, int]:
    """Tenant → its number: ours say it, others are numbered as they appear."""
    names = list(dict.fromkeys(line.tenant for line in lines if line.tenant is not None))
    own = [_OWN_TENANT.fullmatch(name) for name in names]
    if all(own):
        return {name: int(match[1]) for name, match in zip(names, own, strict=True) if match}
    return {name: number for number, name in enumerate(names)}
