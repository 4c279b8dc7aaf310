"""A run folder that a command is given: what is wrong with it, before anything is read."""

from __future__ import annotations

from pathlib import Path

from geokv.errors import ConfigError


def require_run(run: Path) -> None:
    """Refuse what is not the folder of a finished run.

    Raises:
        ConfigError: no folder, no run, or one that goes on or did not finish.
    """
    from geokv.live.finished import require_finished

    if not run.exists():
        raise ConfigError(f"{run}: no such run folder", "runs are kept under results/")
    if not run.is_dir():
        raise ConfigError(f"{run}: is a file", f"give the folder of a run, perhaps {run.parent}")
    lacking = [
        name for name in ("scenario.yaml", "manifest.json", "records") if not (run / name).exists()
    ]
    if lacking:
        inside = sorted(path.parent for path in run.glob("*/scenario.yaml"))
        hint = "give the folder of one run, as results/distance_ttft/<stamp>-<hash>"
        if inside:
            hint = f"it holds run folders: {inside[-1]} is the latest"
        raise ConfigError(f"{run}: is no run folder, it has no {lacking[0]}", hint)
    require_finished(run)
