"""Entering namespaces, and what the running kernel has."""

import os
import socket
import threading

import pytest

from geokv.errors import LabError
from geokv.lab.build import Lab
from geokv.lab.capabilities import CONGESTION, NEEDED, QDISCS, probe_capabilities
from geokv.lab.enter import in_netns, new_netns
from geokv.lab.journal import Journal
from geokv.lab.netlink import Netlink, NetlinkRefused
from geokv.lab.plan import compile_plan
from geokv.lab.topology import load_topology

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces: needs root")


def here():
    return os.readlink("/proc/thread-self/ns/net")


@pytest.fixture
def scratch():
    descriptor = new_netns()
    yield f"/proc/self/fd/{descriptor}"
    os.close(descriptor)


@root_only
def test_only_this_thread_moves_and_comes_back(scratch):
    before, elsewhere = here(), []
    with in_netns(scratch):
        assert here() != before
        thread = threading.Thread(target=lambda: elsewhere.append(here()))
        thread.start()
        thread.join()
    assert here() == before
    with pytest.raises(KeyError), in_netns(scratch):
        raise KeyError("inside")
    assert here() == before


@root_only
def test_a_socket_stays_where_it_was_opened(scratch):
    with Netlink(scratch) as link:
        link.set_link("lo", up=True)
    with in_netns(scratch):
        door = socket.create_server(("127.0.0.1", 0))
    with door:
        address = door.getsockname()
        with in_netns(scratch), socket.create_connection(address, timeout=2):
            pass
        with pytest.raises(OSError), socket.create_connection(address, timeout=2):
            pass


def test_a_namespace_that_is_gone():
    with pytest.raises(LabError, match="cannot be opened"), in_netns("/proc/1/ns/none"):
        pass


@root_only
def test_the_kernels_refusal_names_the_thing(scratch):
    with Netlink(scratch) as link, pytest.raises(NetlinkRefused, match="interface nowhere"):
        link.index("nowhere")


@root_only
def test_routes_carry_mtu_source_and_congestion(scratch):
    far = new_netns()
    with Netlink(scratch) as link:
        link.add_veth("x", "y", far, 9000, ("02:00:00:00:00:01", "02:00:00:00:00:02"))
        link.set_link("x", up=True)
        link.add_address("x", "10.0.0.1", 30)
        link.set_route("10.9.0.0", 24, "10.0.0.2", source="10.0.0.1", mtu=8000, congestion="cubic")
        link.set_route("10.9.0.0", 24, "10.0.0.2", source="10.0.0.1", mtu=1500, congestion="cubic")
        (route,) = [route for route in link.routes() if route["dst_len"] == 24]
        metrics = route.get_attr("RTA_METRICS")
        assert metrics.get_attr("RTAX_MTU") == 1500
        assert metrics.get_attr("RTAX_CC_ALGO") == "cubic"
        assert route.get_attr("RTA_PREFSRC") == "10.0.0.1"
    os.close(far)


@root_only
def test_capabilities_are_tried_and_leave_nothing(scratch):
    descriptors = len(os.listdir("/proc/self/fd"))
    found = probe_capabilities()
    assert set(found) == {"namespaces", "veth", "bridge", *QDISCS, *CONGESTION}
    assert found["veth"].ok
    for capability in found.values():
        assert capability.ok != bool(capability.reason)
    assert len(os.listdir("/proc/self/fd")) == descriptors


@root_only
def test_a_kernel_without_netem_is_refused_with_advice(tmp_path):
    found = probe_capabilities()
    if all(found[name].ok for name in NEEDED):
        pytest.skip("this kernel has netem")
    with Journal.open(folder=tmp_path) as journal, pytest.raises(LabError) as error:
        Lab.build(compile_plan(load_topology("pair")), journal)
    assert "--clock virtual" in error.value.hint
    assert list(tmp_path.iterdir()) == []
