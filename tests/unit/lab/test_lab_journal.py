"""Clean-up removes exactly what a dead run's journal lists (INV-8)."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from geokv.errors import LabError
from geokv.lab.clean import clean
from geokv.lab.journal import Journal, dead_journals, read_journal, start_time
from geokv.lab.netlink import Netlink, NetlinkRefused

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces: needs root")

OWNER = """
import os, subprocess, sys, time
from pathlib import Path
from geokv.lab.journal import Journal
from geokv.lab.netlink import Netlink

folder, stop = Path(sys.argv[1]), sys.argv[2]
journal = Journal.open(folder=folder)
run = journal.run
journal.record("netns", name=f"gk-{run}-x")
if stop != "recorded":
    subprocess.run(["ip", "netns", "add", f"gk-{run}-x"], check=True)
    journal.record("interface", name=f"gk{run}0")
    with Netlink() as link:
        link.add_bridge(f"gk{run}0")
    where = folder / f"scratch-{run}"
    journal.record("folder", path=str(where))
    where.mkdir()
    (where / "file").write_text("x")
    entry = journal.record("process")
    child = subprocess.Popen(
        ["sleep", "300"], env={**os.environ, **journal.environment(entry)}, start_new_session=True
    )
    (folder / "child").write_text(str(child.pid))
    if stop != "unnamed-process":
        journal.process_started(entry, child.pid)
print(run, flush=True)
time.sleep(300)
"""


def interface_exists(name):
    try:
        with Netlink() as link:
            return link.index(name) > 0
    except NetlinkRefused:
        return False


@pytest.fixture
def killed_owner(tmp_path, request):
    """The journal of a process that made things and was killed with signal 9."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), request.param],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as owner:
        run = owner.stdout.readline().strip()
        path = tmp_path / f"{run}.jsonl"
        assert run, "the owner did not start"
        with pytest.raises(LabError, match="still going"):
            clean(path)
        assert dead_journals(tmp_path) == []
        owner.send_signal(signal.SIGKILL)
    yield run, path
    if path.exists():
        clean(path)


@root_only
@pytest.mark.parametrize("killed_owner", ["recorded", "unnamed-process", "made"], indirect=True)
def test_killed_owner_leaves_nothing_after_clean(killed_owner, tmp_path):
    run, path = killed_owner
    decoy = f"gk-decoy{os.getpid()}-x"
    subprocess.run(["ip", "netns", "add", decoy], check=True)
    bystander = subprocess.Popen(["sleep", "300"])
    other = tmp_path / "scratch-other"
    other.mkdir()
    child = tmp_path / "child"
    try:
        assert dead_journals(tmp_path) == [path]
        made = Path(f"/run/netns/gk-{run}-x").exists()
        removed = clean(path)
        assert len(removed) == (4 if made else 0), removed
        assert not Path(f"/run/netns/gk-{run}-x").exists()
        assert not interface_exists(f"gk{run}0")
        assert not (tmp_path / f"scratch-{run}").exists()
        if child.exists():
            assert start_time(int(child.read_text())) is None
        assert clean(path) == []
        assert dead_journals(tmp_path) == []
        assert Path(f"/run/netns/{decoy}").exists()
        assert bystander.poll() is None
        assert other.is_dir()
    finally:
        subprocess.run(["ip", "netns", "del", decoy], check=True)
        bystander.kill()
        bystander.wait()


def dead_journal(tmp_path, *entries, boot=None):
    """A journal whose owner is long gone."""
    with Journal.open("feedface", tmp_path) as journal:
        for kind, what in entries:
            journal.record(kind, **what)
    if not entries:
        journal.path.write_text("")
        return journal.path
    lines = journal.path.read_text().splitlines()
    header = json.loads(lines[0])
    header["start"] += 1
    header["boot"] = boot or header["boot"]
    journal.path.write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
    return journal.path


def test_a_process_with_another_start_time_is_left_alone(tmp_path):
    bystander = subprocess.Popen(["sleep", "300"])
    try:
        started = start_time(bystander.pid)
        path = dead_journal(tmp_path, ("process", {"pid": bystander.pid, "start": started - 1}))
        assert clean(path) == []
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_the_very_process_is_ended(tmp_path):
    child = subprocess.Popen(["sleep", "300"])
    path = dead_journal(tmp_path, ("process", {"pid": child.pid, "start": start_time(child.pid)}))
    assert clean(path) == [f"process {child.pid}"]
    assert child.wait(5) == -signal.SIGKILL


def test_names_without_the_run_id_are_refused(tmp_path):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    path = dead_journal(tmp_path, ("folder", {"path": str(foreign)}))
    with pytest.raises(LabError, match="does not carry the run id"):
        clean(path)
    assert foreign.is_dir()
    assert path.exists()


def test_after_a_reboot_only_folders_are_looked_at(tmp_path):
    child = subprocess.Popen(["sleep", "300"])
    folder = tmp_path / "scratch-feedface"
    folder.mkdir()
    path = dead_journal(
        tmp_path,
        ("process", {"pid": child.pid, "start": start_time(child.pid)}),
        ("folder", {"path": str(folder)}),
        boot="another",
    )
    try:
        assert clean(path) == [f"folder {folder}"]
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_a_link_to_a_folder_is_not_followed(tmp_path):
    real = tmp_path / "precious"
    real.mkdir()
    (tmp_path / "scratch-feedface").symlink_to(real)
    path = dead_journal(tmp_path, ("folder", {"path": str(tmp_path / "scratch-feedface")}))
    assert clean(path) == []
    assert real.is_dir()


def test_sysctl_is_put_back_unless_someone_changed_it_since(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_text("9\t9\n")
    theirs.write_text("7\n")
    path = dead_journal(
        tmp_path,
        ("sysctl", {"path": str(ours), "old": "1 1", "new": "9 9"}),
        ("sysctl", {"path": str(theirs), "old": "1", "new": "9"}),
    )
    clean(path)
    assert ours.read_text() == "1 1"
    assert theirs.read_text() == "7\n"


def test_what_is_gone_is_not_listed_and_an_empty_journal_vanishes(tmp_path):
    with Journal.open(folder=tmp_path) as journal:
        entry = journal.record("folder", path="x")
        kept = journal.record("folder", path="y")
        journal.done(entry)
        assert read_journal(journal.path).entries == {kept: {"kind": "folder", "path": "y"}}
        journal.done(kept)
    assert not journal.path.exists()


def test_a_line_cut_short_by_death_is_left_out(tmp_path):
    path = dead_journal(tmp_path, ("folder", {"path": "a"}))
    path.write_text(path.read_text() + '{"id": 2, "kind": "fol')
    assert list(read_journal(path).entries) == [1]
    path.write_text("rubbish\n" + path.read_text())
    with pytest.raises(LabError, match=r":1: not a journal line"):
        read_journal(path)


def test_an_owner_that_died_at_once(tmp_path):
    path = dead_journal(tmp_path)
    assert dead_journals(tmp_path) == [path]
    assert clean(path) == []
    assert not path.exists()


def test_start_time_of_nobody():
    assert start_time(2**22 + 1) is None
    assert start_time(os.getpid()) <= time.clock_gettime(time.CLOCK_BOOTTIME) * 100 + 100
