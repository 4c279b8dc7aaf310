"""Where a run happens: in an embedded Linux VM with a virtual clock, or on this host."""

from geokv.vm.job import Job, Outcome
from geokv.vm.kernel import Kernel
from geokv.vm.place import Place, choose_place

__all__ = ["Job", "Kernel", "Outcome", "Place", "choose_place"]
