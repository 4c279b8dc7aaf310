"""``python -m geokv.coordinator.capabilities``: what the running kernel can do, as JSON."""

import json
import platform

from geokv.lab.capabilities import probe_capabilities

if __name__ == "__main__":
    found = {name: [one.ok, one.reason] for name, one in probe_capabilities().items()}
    print(json.dumps({"kernel": platform.release(), "capabilities": found}))
