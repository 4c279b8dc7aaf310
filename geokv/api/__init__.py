"""geokv from Python: build a scenario, run it, read what it left. Re-exported by ``geokv``."""
