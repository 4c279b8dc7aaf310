"""What is asked: one file per kind. The next kind makes this a union by ``kind``."""

from geokv.scenario.workload.shared_prefix import SharedPrefix

Workload = SharedPrefix

__all__ = ["SharedPrefix", "Workload"]
