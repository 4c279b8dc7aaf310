"""Whole topologies: routes over several links, Mininet's own command, and death of the owner."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from geokv.lab.build import Lab
from geokv.lab.check import check_links
from geokv.lab.clean import clean
from geokv.lab.enter import in_netns
from geokv.lab.journal import Journal, dead_journals, start_time
from geokv.lab.plan import compile_plan
from geokv.lab.topology import load_topology


def ping_ns(netns, address, size=56):
    with in_netns(netns):
        done = subprocess.run(
            ["ping", "-n", "-q", "-c", "3", "-i", "0.01", "-W", "2", "-s", str(size), address],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stdout
    return float(done.stdout.rsplit("= ", 1)[1].split("/")[1]) * 1e6


@pytest.mark.parametrize("name", ["metro-ring", "hub-spoke"])
def test_every_pair_of_sites_is_as_far_as_its_path(name):
    plan = compile_plan(load_topology(name))
    with Lab.build(plan) as lab:
        for start in plan.sites:
            for goal in plan.sites:
                asked = plan.path(start, goal).rtt_ns if goal != start else 0
                assert abs(ping_ns(lab.netns(start), lab.address(goal)) - asked) <= 7_000
        first, last = plan.sites[0], plan.sites[3]
        far = plan.path(first, last)
        # clients reach any site, and full frames pass every link
        seen = ping_ns(lab.access_netns(first), lab.address(last), far.mtu - 28)
        assert seen == pytest.approx(far.rtt_ns, abs=60_000)
        for found in check_links(lab):
            assert found.ok, found.problems


def test_routes_move_when_distances_change():
    plan = compile_plan(load_topology("metro-ring"))
    with Lab.build(plan) as lab:
        assert abs(ping_ns(lab.netns("a"), lab.address("e")) - 1_000_000) <= 5_000
        lab.change("e-a", km=400)
        assert lab.plan.path("a", "e").sites == ("a", "b", "c", "d", "e")
        assert abs(ping_ns(lab.netns("a"), lab.address("e")) - 1_600_000) <= 7_000


def test_small_frames_on_one_link_do_not_break_paths_over_others():
    plan = compile_plan(load_topology("hub-spoke")).replan("hub-b", mtu=1500)
    with Lab.build(plan) as lab:
        assert plan.path("a", "b").mtu == 1500
        ping_ns(lab.netns("a"), lab.address("c"), 8972)
        ping_ns(lab.netns("a"), lab.address("b"), 8972)


def test_nothing_is_left_after_a_lab():
    def seen():
        links = Path("/sys/class/net")
        return sorted(os.listdir("/proc/self/fd")), sorted(path.name for path in links.iterdir())

    journal = Journal.open(folder=Path("/run/geokv-test"))
    before = seen()
    with Lab.build(compile_plan(load_topology("pair")), journal) as lab:
        shells = [lab.host(site).pid for site in lab.plan.sites]
    assert seen() == before
    assert [start_time(pid) for pid in shells] == [None, None]
    journal.close()
    assert not journal.path.exists()


OWNER = """
import json, sys, time
from pathlib import Path
from geokv.lab.build import Lab
from geokv.lab.journal import Journal
from geokv.lab.plan import compile_plan
from geokv.lab.topology import load_topology

journal = Journal.open(folder=Path(sys.argv[1]))
with Lab.build(compile_plan(load_topology("pair")), journal) as lab:
    print(json.dumps([lab.host(site).pid for site in lab.plan.sites]), flush=True)
    time.sleep(600)
"""


def test_a_killed_owner_leaves_only_what_clean_removes():
    folder = Path(f"/run/geokv-killed-{os.getpid()}")
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as owner:
        shells = json.loads(owner.stdout.readline())
        assert all(start_time(pid) for pid in shells)
        bystander = subprocess.Popen(["bash", "-c", "sleep 900 & wait"])
        owner.send_signal(signal.SIGKILL)
    (path,) = dead_journals(folder)
    clean(path)
    assert [start_time(pid) for pid in shells] == [None, None]
    assert bystander.poll() is None
    assert list(folder.iterdir()) == []
    bystander.kill()
    bystander.wait()


@pytest.mark.parametrize("name", ["pair", "metro-ring"])
def test_the_mn_command_builds_our_topologies(name):
    mn = shutil.which("mn", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    command = [sys.executable, mn, "--custom", "topologies/mn_topos.py", "--topo", name]
    done = subprocess.run(
        [*command, "--controller", "none", "--test", "pingall"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GEOKV_BYTE_SCALE": "4"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Results: 0% dropped" in done.stdout + done.stderr


def test_mn_distances_work():
    from mininet.net import Mininet

    from geokv.lab.mn import GeoTopo

    net = Mininet(topo=GeoTopo(source="metro-ring"), controller=None)
    net.start()
    try:
        a, d = net["a"], net["d"]
        ping_ns(f"/proc/{a.pid}/ns/net", d.IP())  # neighbours are asked for on the first one
        assert abs(ping_ns(f"/proc/{a.pid}/ns/net", d.IP()) - 850_000) <= 7_000
    finally:
        net.stop()
