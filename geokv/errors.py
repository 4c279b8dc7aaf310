"""Every error geokv raises on purpose.

    GeokvError
    ├── ConfigError      a file, option or value the user wrote (exit code 2)
    ├── HostError        this machine lacks something a run needs
    │   ├── VmError      the embedded VM did not build, boot or finish
    │   └── MeterError   a meter of processors or GPUs cannot be read
    ├── LabError         the emulated network could not be made as asked
    ├── EngineError      the worker cannot do what was asked (model, blocks)
    │   ├── NoRoom       the pool has no block to give, even after eviction
    │   ├── ComputeError a step failed, or came to no number
    │   └── Overloaded   the queue is full; carries when to try again
    ├── CacheError       the shared cache
    │   ├── DamagedChunks what lies in a tier is not what its checksums say
    │   ├── RecordError  bytes that are not a whole, valid chunk record
    │   └── FetchError   a chunk could not be brought here; carries the cause
    └── RunError         a run could not be carried through
        ├── RunEnded     somebody ended it before it was over (exit code 130)
        └── FaultError   a drill's fault was not seen to take effect, or to heal

A message says what happened and where; ``hint`` says what to do next.
"""

from __future__ import annotations

from collections.abc import Mapping


class GeokvError(Exception):
    """Base of all expected failures.

    Args:
        message: what happened, with its place.
        hint: what the user can do about it; empty when there is nothing to do.
    """

    exit_code = 4

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.hint}" if self.hint else self.message


class ConfigError(GeokvError):
    """The user's input is wrong. The message names the path: ``links.a-b.km: …``."""

    exit_code = 2


class HostError(GeokvError):
    """The machine cannot run this."""


class VmError(HostError):
    """The embedded VM failed; the message ends with the tail of its console."""


class MeterError(HostError):
    """A meter of this machine cannot be read; where none is asked for, a run does without."""


class LabError(GeokvError):
    """The emulated network is not what was asked."""


class EngineError(GeokvError):
    """The serving engine refuses: unknown model, no free block, prompt too long."""


class NoRoom(EngineError):
    """The pool has fewer blocks to give than were wanted; nothing was taken."""


class ComputeError(EngineError):
    """The request was in order, computing it was not: weights, KV or the device."""


class Overloaded(EngineError):
    """The worker's queue is full: the request was not taken.

    Args:
        retry_after_s: when there is likely to be room, in whole seconds (≥ 1).
    """

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message, f"try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class CacheError(GeokvError):
    """The shared KV cache."""


class DamagedChunks(CacheError):
    """Bytes in a tier are not what their checksums say, while all books are in order.

    Args:
        found: tier → key → what is wrong with it; at least one.
    """

    def __init__(self, found: Mapping[str, Mapping[bytes, str]]) -> None:
        wrong = [said for chunks in found.values() for said in chunks.values()]
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        super().__init__(wrong[0] + more)
        self.keys = {tier: list(chunks) for tier, chunks in found.items() if chunks}


class RecordError(CacheError):
    """Bytes that are not a whole, valid chunk record of the expected kind."""


class FetchError(CacheError):
    """A fetch gave no usable chunk; always counted as a miss, never served.

    Args:
        cause: one word for the counters, for example ``timeout``, ``corrupt``,
            ``absent``, ``unreachable``, ``unauthorised``, ``mismatch``.
    """

    def __init__(self, cause: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.cause = cause


class RunError(GeokvError):
    """A run that started could not be carried to its end."""


class RunEnded(RunError):
    """Somebody ended the run before it was over; its folder keeps what was recorded."""

    exit_code = 130


class FaultError(RunError):
    """A drill's fault did not fire or did not heal; the message says which and why."""
