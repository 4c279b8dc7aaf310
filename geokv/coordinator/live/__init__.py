"""A run that is watched and told things while it goes on; switched on by ``--live``.

It reads clocks, asks sites and sets timers, so a live run's times differ by µs from those of a run
that is left alone. Nothing of it crosses an emulated link.
"""
