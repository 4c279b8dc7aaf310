"""Fit every measured device and pair, and write what the package ships.

    python -m geokv.engine.fit PATH_TO_gpu_profiles [INTO]

INTO is the package's own ``profiles`` folder unless given. Pairs nobody measured need no
file: they are composed when asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from geokv.config import Strict
from geokv.engine.fit.compare import compare
from geokv.engine.fit.kernels import fit_kernels
from geokv.engine.fit.measured import Measurements
from geokv.engine.fit.pairs import fit_pair, fitted_pairs
from geokv.engine.fit.rows import Row
from geokv.engine.fit.sources import Sources
from geokv.engine.profile_cost import GpuProfile
from geokv.engine.profile_parts import Kernels, profile_name
from geokv.errors import GeokvError

_HEADER = "# Made by: python -m geokv.engine.fit PATH_TO_gpu_profiles\n"


def write(files: Measurements, sources: Sources, into: Path) -> list[Path]:
    """Fit and write everything; returns the files.

    Raises:
        ConfigError: a measured file is missing.
    """
    kernels = fit_kernels(sources)
    profiles = {
        profile_name(*pair): fit_pair(sources, kernels[pair[-1]], *pair)
        for pair in fitted_pairs(sources)
    }
    rows = compare(files, sources, kernels, profiles.__getitem__, held_out=False)
    written = []
    for device, one in kernels.items():
        own = {_said(row): row.error for row in rows if _of_kernels(row, device)}
        whole = one.model_copy(update={"error": {**one.error, **own}})
        written.append(_write(into / "kernels" / f"{device}.yaml", whole))
    for name, profile in profiles.items():
        errors = {_said(row): row.error for row in rows if _is_about(row, profile, kernels)}
        whole_profile = profile.model_copy(update={"fit_error": errors})
        written.append(_write(into / "fitted" / f"{name}.yaml", whole_profile))
    return written


def _said(row: Row) -> str:
    return f"{row.phase}: {row.what} ({row.source})"


def _of_kernels(row: Row, device: str) -> bool:
    return row.device == device and row.what.split(", ")[-1].startswith("attention")


def _is_about(row: Row, profile: GpuProfile, kernels: Mapping[str, Kernels]) -> bool:
    """Whether ``row`` says how good ``profile`` is.

    A device's attention kernels serve all its profiles, whosever heads were measured; an
    end-to-end stack has a decode kernel of its own.
    """
    if row.profile == profile.name:
        return True
    of_device = row.what.startswith("attention") and profile.name.endswith(f"@{row.device}")
    shared = kernels[row.device].decode_attention == profile.decode_attention
    return of_device and (shared or row.phase != "decode")


def _write(path: Path, data: Strict) -> Path:
    text = yaml.safe_dump(
        data.model_dump(mode="json"), sort_keys=False, width=100, allow_unicode=True
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_HEADER + text, encoding="utf-8")
    return path


def main(arguments: list[str]) -> int:
    """Write the files and name them."""
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    own = Path(__file__).parents[1] / "profiles"
    try:
        files = Measurements(Path(arguments[0]))
        written = write(files, Sources.read(files), Path(arguments[1]) if arguments[1:] else own)
    except GeokvError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for path in written:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
