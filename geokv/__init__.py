"""geokv: share KV caches between small data centres, on an emulated optical network.

The rooms, in the order in which a run passes through them: ``scenario`` (what to
run), ``vm`` (where), ``lab`` (the network), ``site`` with ``engine`` and ``cache``
(the system under test), ``coordinator`` (control), ``measure`` and ``report``.
``docs/architecture.md`` is the tour.
"""

__version__ = "0.1.0"
