"""What a site remembers of the requests it served lately, within bounds.

The coordinator reads each one's record right after its answer; whoever asks for one that is
long past is told that it is not there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch

from geokv.site.record import RequestRecord

_RECORDS = 10_000
_TOKENS = 1_000_000
"""Output tokens in all records; each costs some 80 bytes (its id and its stamp)."""
_LOGITS_BYTES = 32 * 2**20
"""170 rows of a vocabulary of 49,152."""


class RecentRequests:
    """Records of the latest requests, and of fewer of them the first token's logits.

    Whatever the bounds, the request that ended last is there with all it has.

    Args:
        records: how many records are kept.
        tokens: how many output tokens the records of ended requests may hold together.
        logits_bytes: how much the rows of logits may take together. A record outlives its row.
    """

    def __init__(
        self,
        records: int = _RECORDS,
        tokens: int = _TOKENS,
        logits_bytes: int = _LOGITS_BYTES,
    ) -> None:
        self._most_records, self._most_tokens = records, tokens
        self._most_logits_bytes = logits_bytes
        self._records: OrderedDict[str, RequestRecord] = OrderedDict()
        self._tokens: dict[str, int] = {}
        self._kept_tokens = 0
        self._logits: OrderedDict[str, torch.Tensor] = OrderedDict()
        self.logits_bytes = 0

    def __getitem__(self, request_id: str) -> RequestRecord:
        return self._records[request_id]

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._records

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[str]:
        """Names, the request that began or ended last at the end."""
        return iter(self._records)

    def begin(self, record: RequestRecord) -> None:
        """A request has come; what was known under its name is forgotten."""
        self._forget(record.request_id)
        self._records[record.request_id] = record
        self._trim()

    def end(self, record: RequestRecord, first_logits: torch.Tensor | None) -> None:
        """A request has ended.

        Args:
            first_logits: float32 ``[vocab]`` on any device; kept as a copy in host memory,
                because a row of a batch would keep the whole batch.
        """
        name = record.request_id
        if self._records.get(name, record) is not record:
            return  # Another one came by the same name.
        self._forget(name)
        self._records[name] = record
        self._tokens[name] = record.completion_tokens
        self._kept_tokens += record.completion_tokens
        if first_logits is not None:
            row = first_logits.detach().to("cpu", copy=True)
            self._logits[name] = row
            self.logits_bytes += row.nbytes
        self._trim()

    def describe(self, request_id: str) -> dict[str, Any] | None:
        """A record, JSON-ready, with its first token's logits: empty where they are not kept."""
        record = self._records.get(request_id)
        if record is None:
            return None
        row = self._logits.get(request_id)
        return {**record.as_dict(), "first_logits": [] if row is None else row.tolist()}

    def _trim(self) -> None:
        while len(self._records) > 1 and (
            len(self._records) > self._most_records or self._kept_tokens > self._most_tokens
        ):
            self._forget(next(iter(self._records)))
        while len(self._logits) > 1 and self.logits_bytes > self._most_logits_bytes:
            self._forget_logits(next(iter(self._logits)))

    def _forget(self, name: str) -> None:
        self._records.pop(name, None)
        self._kept_tokens -= self._tokens.pop(name, 0)
        self._forget_logits(name)

    def _forget_logits(self, name: str) -> None:
        row = self._logits.pop(name, None)
        self.logits_bytes -= 0 if row is None else row.nbytes
