"""Loss, corruption, reordering and duplication: as asked, and the same again from the same seed."""

import pytest

from geokv.lab.build import Lab
from geokv.lab.check import check_link
from geokv.lab.plan import compile_plan
from geokv.lab.probe import LinkProbe
from geokv.lab.topology import load_topology


def plan(seed=0, **link):
    return compile_plan(load_topology("pair").with_link("a-b", km=10, **link), 4, seed)


def train(lab, count=2000):
    with LinkProbe(lab, "a-b") as probe:
        return probe.train(0, count)


@pytest.fixture(scope="module")
def shared():
    with Lab.build(plan()) as lab:
        yield lab


@pytest.fixture
def lab(shared):
    plain = {"loss": None, "loss_model": None, "jitter": None}
    shared.change("a-b", **plain, corrupt=0, reorder=0, duplicate=0)
    return shared


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_loss_is_the_share_asked(lab, share):
    lab.change("a-b", loss=share)
    lost = len(train(lab).lost_numbers)
    assert abs(lost - 2000 * share) <= 5 * (2000 * share * (1 - share)) ** 0.5


def test_loss_repeats_with_the_seed():
    runs = []
    for seed in (1, 1, 2):
        with Lab.build(plan(seed, loss=0.1)) as lab:
            runs.append(train(lab, 500).lost_numbers)
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_gilbert_elliott_loses_in_bursts(lab):
    chain = {"kind": "gilbert-elliott", "good_to_bad": 0.02, "bad_to_good": 0.2}
    planned = lab.change("a-b", loss_model=chain)
    lost = train(lab, 4000).lost_numbers
    assert planned.mean_loss == pytest.approx(0.0909, abs=1e-3)
    assert len(lost) / 4000 == pytest.approx(planned.mean_loss, rel=0.35)
    starts = sum(number - 1 not in set(lost) for number in lost)
    assert 3.5 <= len(lost) / starts <= 7  # mean burst of 1/0.2 packets; at random it is 1.1
    assert check_link(lab, "a-b").ok


def test_corruption_changes_one_bit(lab):
    lab.change("a-b", corrupt=0.1)
    found = train(lab)
    # some flips hit the frame's own header, and such a frame is not seen at all
    assert 0.04 <= found.corrupt / found.sent <= 0.13
    assert found.intact / found.sent == pytest.approx(0.9, abs=0.04)


def test_reordered_packets_overtake(lab):
    lab.change("a-b", reorder=0.1)
    found = train(lab)
    assert found.intact == found.sent
    assert found.overtook / found.sent == pytest.approx(0.1, abs=0.035)


def test_duplicates(lab):
    lab.change("a-b", duplicate=0.1)
    found = train(lab)
    assert found.intact == found.sent
    assert found.duplicate / found.sent == pytest.approx(0.1, abs=0.035)


def test_jitter_spreads_as_asked(lab):
    lab.change("a-b", jitter="20us")
    with LinkProbe(lab, "a-b") as probe:
        ways = probe.echo(200).forward_ns
    assert 17_000 <= (max(ways) - min(ways)) / 2 <= 21_000
    assert sum(ways) / len(ways) == pytest.approx(50_500, abs=3_000)


def test_a_cut_is_loss_of_everything(lab):
    lab.change("a-b", loss=1)
    assert train(lab, 50).intact == 0
    assert check_link(lab, "a-b").ok
    lab.change("a-b", loss=0)
    assert check_link(lab, "a-b").ok


def test_the_check_notices_loss_that_was_not_asked(lab):
    from geokv.lab import wiring
    from geokv.lab.netem import apply_netem
    from geokv.lab.netlink import Netlink

    other = plan(loss=0.3).links["a-b"].forward
    with Netlink(lab.fibre_netns("a-b")) as link:
        apply_netem(link, wiring.port("b"), other)
    found = check_link(lab, "a-b")
    assert any("none asked" in problem for problem in found.problems)
    lab.change("a-b", km=11)
