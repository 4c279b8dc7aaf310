"""Meters of a wall-clock run: processors' joules or time, and GPUs' watts, sampled as it goes."""

from geokv.coordinator.meter.recorder import metering

__all__ = ["metering"]
