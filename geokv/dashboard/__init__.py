"""The page over a folder of runs: those that are finished, and those that go on.

It reads run folders as they grow and knows nothing of VMs. What it starts are ``geokv run``
processes of its own; what it does to a running lab it writes where the lab looks for it.
"""
