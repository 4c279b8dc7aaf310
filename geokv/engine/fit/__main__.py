"""Fit every measured device and pair, and write what the package ships.

    python -m geokv.engine.fit PATH_TO_gpu_profiles [INTO]

INTO is the package's own ``profiles`` folder unless given. Pairs nobody measured need no
file: they are composed when asked for.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

from geokv.config import Strict
from geokv.engine.fit.build import fit_kernels, fit_pair, fitted_pairs
from geokv.engine.fit.compare import compare
from geokv.engine.fit.measured import Measurements
from geokv.engine.fit.sources import Sources
from geokv.engine.profile_parts import profile_name
from geokv.errors import GeokvError

_HEADER = "# Made by: python -m geokv.engine.fit PATH_TO_gpu_profiles\n"


def write(files: Measurements, into: Path) -> list[Path]:
    """Fit and write everything; returns the files.

    Raises:
        ConfigError: a measured file is missing.
    """
    sources = Sources.read(files)
    kernels = fit_kernels(sources)
    written = [_write(into / "kernels" / f"{name}.yaml", one) for name, one in kernels.items()]
    profiles = {
        profile_name(*pair): fit_pair(sources, kernels[pair[-1]], *pair)
        for pair in fitted_pairs(sources)
    }
    errors: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in compare(files, sources, kernels, profiles.__getitem__):
        for name, profile in profiles.items():
            # A device's attention kernels serve all its profiles, whosever heads were measured;
            # an end-to-end stack has a decode kernel of its own.
            of_device = row.what.startswith("attention") and name.endswith(f"@{row.device}")
            shared = kernels[row.device].decode_attention == profile.decode_attention
            own = row.phase == "decode" and not shared
            if row.profile == name or (of_device and not own):
                errors[name][f"{row.phase}: {row.what} ({row.source})"] = row.error
    for name, profile in profiles.items():
        whole = profile.model_copy(update={"fit_error": errors[name]})
        written.append(_write(into / "fitted" / f"{name}.yaml", whole))
    return written


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
        written = write(
            Measurements(Path(arguments[0])), Path(arguments[1]) if arguments[1:] else own
        )
    except GeokvError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for path in written:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
