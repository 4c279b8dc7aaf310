"""Every number the energy proxy uses: the scenario's, a profile's, or a published one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pydantic import ValidationError

from geokv.errors import RunError
from geokv.scenario.energy import DEFAULTS, GPU_DEFAULTS, Constant, Energy, HostWatts


@dataclass(frozen=True)
class Constants:
    """Each with its range and its source."""

    idle_w: Constant
    prefill_w: Constant
    decode_w: Constant
    end_w: Constant
    transfer_pj_per_bit: Constant
    switch_w: Constant = DEFAULTS["switch_w"]
    host_w: Constant = DEFAULTS["host_w"]
    core_w: Constant = DEFAULTS["core_w"]
    pue: Constant = DEFAULTS["pue"]
    carbon_intensity_g_per_kwh: Constant = DEFAULTS["carbon_intensity_g_per_kwh"]

    def shown(self) -> dict[str, dict[str, Any]]:
        """Name → value, range and source, as ``summary.json`` has them."""
        return {name: getattr(self, name).model_dump() for name in names()}

    def at(self, name: str, value: float) -> Constants:
        """These, with one at another value; for what a range makes of a result."""
        one = Constant(value=value, low=value, high=value, source=getattr(self, name).source)
        return replace(self, **{name: one})


def names() -> list[str]:
    """What the constants are called, in the order they are shown in."""
    return [field.name for field in fields(Constants)]


def constants(energy: Energy, profile: Mapping[str, Any]) -> Constants:
    """The scenario's own numbers, else the GPU profile's watts, else published ones.

    Args:
        profile: the manifest's; its ``watts`` maps idle, prefill and decode to numbers,
            ``range`` to words such as ``idle 60-80, prefill 600-700`` and ``source``. They are
            of all its ``tensor_parallel`` GPUs; what is known of one GPU is taken as often.

    Raises:
        RunError: a wattage in the profile that is not one.
    """
    watts = profile.get("watts") or {}
    gpus = int(profile.get("tensor_parallel") or 1)
    gpu = {}
    for name, default in GPU_DEFAULTS.items():
        phase = name.removesuffix("_w")
        own = getattr(energy.gpu, name)
        said = watts.get(phase, watts.get(name))
        published = _times(gpus, default) if said is None else _from_profile(phase, said, watts)
        gpu[name] = own or published
    host = energy.host or HostWatts()
    return Constants(
        **gpu,
        end_w=energy.link.end_w,
        transfer_pj_per_bit=energy.link.transfer_pj_per_bit,
        switch_w=energy.link.switch_w or DEFAULTS["switch_w"],
        host_w=_times(gpus, host.base_w or DEFAULTS["host_w"]),
        core_w=host.core_w or DEFAULTS["core_w"],
        pue=energy.pue or DEFAULTS["pue"],
        carbon_intensity_g_per_kwh=energy.carbon_intensity_g_per_kwh
        or DEFAULTS["carbon_intensity_g_per_kwh"],
    )


def _times(gpus: int, one: Constant) -> Constant:
    """Of all GPUs of a site, where the number is of one."""
    if gpus == 1:
        return one
    return Constant(
        value=one.value * gpus,
        low=one.low * gpus,
        high=one.high * gpus,
        source=f"{gpus} GPUs, each: {one.source}",
    )


def _from_profile(phase: str, value: Any, watts: Mapping[str, Any]) -> Constant:
    found = re.search(rf"\b{phase} ([0-9.]+)-([0-9.]+)", str(watts.get("range", "")))
    low, high = (float(found[1]), float(found[2])) if found else (value, value)
    source = f"GPU profile: {watts.get('source', 'no source given')}"
    try:
        return Constant.model_validate({"value": value, "low": low, "high": high, "source": source})
    except ValidationError as error:
        raise RunError(
            f"manifest.json: profile.watts.{phase}: not a wattage ({error.errors()[0]['msg']})"
        ) from None
