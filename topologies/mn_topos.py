"""geokv's topologies for the ``mn`` command, with working distances.

    export PYTHONPATH=.
    mn --custom topologies/mn_topos.py --topo pair --controller none --test pingall
    mn --custom topologies/mn_topos.py --topo metro-ring --controller none
    mininet> a ping -c3 d

Names are those of topologies/*.yaml. Rates are full size; GEOKV_BYTE_SCALE=4 divides them.
``mn`` must run as root under the Python that has geokv, on a kernel with sch_netem: in the VM
(``geokv kernel shell``) or on a host that has it.
"""

from geokv.lab.mn import shipped_topos

topos = shipped_topos()
