"""Matrix products and norms of one model, into memory that is reused."""

from __future__ import annotations

import torch

from geokv.engine.workspace import Workspace

FEW_ROWS = 32
"""Up to so many rows a product is computed the other way round (see :class:`Dense`)."""


class Dense:
    """The parts of a model that treat every row alike.

    Few rows in bfloat16 on a CPU are computed as weight times columns, not rows times
    weight: oneDNN then does not repack the weight at every call, which makes a decode of
    one to 32 sequences a fifth faster. In float32 it is the other way about.

    Whether a row gets the same bits beside any number of other rows depends on the number.
    In float32 MKL has three cases, 1, 2 … 15 and from 16 on, within each of which it does;
    between them rows differ by rounding. Padding every step to 16 rows would make it one,
    and a single decode 2.6 times slower. In bfloat16 oneDNN changes with the size of the
    weight as well.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._scratch = Workspace(dtype, device)
        self._wide = Workspace(torch.float32, device)
        self._turn = device.type == "cpu" and dtype == torch.bfloat16

    @property
    def scratch_bytes(self) -> int:
        """Memory held for reuse."""
        return self._scratch.size_bytes + self._wide.size_bytes

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """Scratch memory; valid until the name is taken again."""
        return self._scratch.take(name, *shape)

    def linear(
        self,
        rows: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        out: torch.Tensor,
    ) -> torch.Tensor:
        """``out = rows @ weight.t() + bias`` for ``weight`` ``[outputs, inputs]``."""
        if self._turns(rows):
            out.copy_(self._turned(rows, weight))
        else:
            torch.mm(rows, weight.t(), out=out)
        return out if bias is None else out.add_(bias)

    def add_linear(
        self,
        rows: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        out: torch.Tensor,
    ) -> None:
        """``out += rows @ weight.t() + bias``."""
        if self._turns(rows):
            out.add_(self._turned(rows, weight))
        else:
            torch.addmm(out, rows, weight.t(), out=out)
        if bias is not None:
            out.add_(bias)

    def _turns(self, rows: torch.Tensor) -> bool:
        return self._turn and rows.shape[0] <= FEW_ROWS

    def _turned(self, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """``rows @ weight.t()``; one row is computed twice, or it would be a slower case."""
        count = rows.shape[0]
        columns = (rows.expand(2, -1) if count == 1 else rows).t()
        product = self.take("turned", weight.shape[0], columns.shape[1])
        return torch.mm(weight, columns, out=product).t()[:count]

    def rms_norm(
        self, rows: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor
    ) -> torch.Tensor:
        """Normalise the last dimension in float32, whatever the dtype; ``out`` may be ``rows``."""
        wide = rows
        if rows.dtype != torch.float32:
            wide = self._wide.take("rows", *rows.shape).copy_(rows)
        scale = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        scale.square_().div_(rows.shape[-1]).add_(eps).rsqrt_()
        if wide is rows:
            return torch.mul(rows, scale, out=out).mul_(weight)
        return out.copy_(wide.mul_(scale)).mul_(weight)
