"""Files of a run, listed and handed out."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any, BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from geokv.dashboard.guard import FILE_POLICY
from geokv.dashboard.reading import Folder, open_below

_MOST = 200
_DEEPEST = 2
_PIECE_BYTES = 256 * 2**10
_TYPES = {
    "csv": "text/csv",
    "html": "text/html",
    "json": "application/json",
    "jsonl": "text/plain",
    "md": "text/plain",
    "parquet": "application/vnd.apache.parquet",
    "png": "image/png",
    "svg": "image/svg+xml",
    "tex": "text/plain",
    "txt": "text/plain",
    "yaml": "text/plain",
}
_BINARY = "application/octet-stream"


def list_files(run: Folder) -> list[dict[str, Any]]:
    """``{"path": …, "bytes": …}`` of a run's files, by path; hidden ones and links left out."""
    found: list[dict[str, Any]] = []
    left: list[tuple[Folder, str, int]] = [(run, "", 0)]
    while left and len(found) < _MOST:
        folder, prefix, depth = left.pop()
        try:
            with folder.opened() as here, os.scandir(here) as entries:
                for one in entries:
                    if one.name.startswith("."):
                        continue
                    if one.is_dir(follow_symlinks=False) and depth < _DEEPEST:
                        left.append((folder.inner(one.name), f"{prefix}{one.name}/", depth + 1))
                    elif one.is_file(follow_symlinks=False):
                        size = one.stat(follow_symlinks=False).st_size
                        found.append({"path": prefix + one.name, "bytes": size})
        except OSError:
            continue
    return sorted(found[:_MOST], key=lambda one: (one["path"].count("/"), one["path"]))


async def send_file(run: Folder, path: str) -> Response:
    """One file as it is now, under a policy in which it can do nothing.

    Raises:
        OSError: there is no such file that may be read.
    """
    names = path.split("/")
    stream = await run_in_threadpool(open_below, run, names)
    size = os.fstat(stream.fileno()).st_size
    kind = _TYPES.get(names[-1].rpartition(".")[2].lower(), _BINARY)
    text = kind.startswith("text/") or kind in ("application/json", "image/svg+xml")
    return StreamingResponse(
        _pieces(stream, size),
        media_type=f"{kind}; charset=utf-8" if text else kind,
        headers={"content-length": str(size), "content-security-policy": FILE_POLICY},
    )


async def _pieces(stream: BinaryIO, size: int) -> AsyncIterator[bytes]:
    """Exactly the bytes that were announced: the file may grow meanwhile."""
    with stream:
        while size:
            piece = await run_in_threadpool(stream.read, min(size, _PIECE_BYTES))
            if not piece:
                return
            size -= len(piece)
            yield piece
