"""Code that is no part of geokv: a policy or a fault of the user's own.

It is named ``module:Class`` and lies in a folder of the scenario's ``code``, or it is installed
and has registered a plain name under an entry point group. Both are found in the same way on the
host and inside the VM, which sees the host's files. Where the host's Python looks and the VM's
does not (``PYTHONPATH``, a script's ``sys.path``), the folder becomes part of ``code``.
"""

from geokv.foreign.homes import check_folder, guest_has, home
from geokv.foreign.loading import importing, load, provenance, use_folders
from geokv.foreign.names import (
    EVICTION,
    REFERENCE,
    ROUTING,
    is_reference,
    registered,
    require_known,
    well_formed,
)

__all__ = [
    "EVICTION",
    "REFERENCE",
    "ROUTING",
    "check_folder",
    "guest_has",
    "home",
    "importing",
    "is_reference",
    "load",
    "provenance",
    "registered",
    "require_known",
    "use_folders",
    "well_formed",
]
