"""The meters: real processor time, RAPL's folder, NVML's calls; and what is made of samples."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from geokv.clock import now_ns
from geokv.coordinator.meter import metering
from geokv.coordinator.meter.cpu_time import CpuTime, cpu_time_ns
from geokv.coordinator.meter.nvml import Nvml
from geokv.coordinator.meter.rapl import Rapl
from geokv.coordinator.meter.recorder import Meters
from geokv.errors import ConfigError, MeterError, RunError
from geokv.measure.energy.metered import Meter, MeterHead, Sample, load_meters
from geokv.scenario import load_scenario

MS = 1_000_000


def burn(seconds: float) -> None:
    """Use so much processor time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_processor_time_of_this_and_of_another_process() -> None:
    before = cpu_time_ns(os.getpid())
    burn(0.05)
    after = cpu_time_ns(os.getpid())
    assert before is not None and after is not None
    assert 50 * MS <= after - before < 5_000 * MS
    code = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout is not None
        other.stdout.readline()
        used = cpu_time_ns(other.pid)
        assert used is not None and used >= 200 * MS
    finally:
        other.communicate(b"\n", timeout=30)
    assert cpu_time_ns(other.pid) is None


def test_processor_time_goes_on_when_a_site_is_started_anew() -> None:
    meter = CpuTime()
    burn(0.02)
    first = meter.read_ns({"a": os.getpid()})["a"]
    gone = meter.read_ns({"a": 2**22 + 1})["a"]  # more than Linux gives out: no such process
    assert gone >= first
    again = meter.read_ns({"a": os.getpid()})["a"]
    assert again >= gone + first


def zone(folder: Path, name: str, kind: str, energy_uj: int) -> Path:
    """What a kernel shows of one package."""
    made = folder / name
    made.mkdir(parents=True)
    (made / "name").write_text(kind + "\n")
    (made / "max_energy_range_uj").write_text("262143328850\n")
    (made / "energy_uj").write_text(f"{energy_uj}\n")
    return made / "energy_uj"


def test_rapl_sums_packages_and_unwraps_their_counters(tmp_path: Path) -> None:
    one = zone(tmp_path, "intel-rapl:0", "package-0", 262_143_000_000)
    two = zone(tmp_path, "intel-rapl:1", "package-1", 5)
    zone(tmp_path, "intel-rapl:0:0", "core", 1)
    zone(tmp_path, "intel-rapl:2", "psys", 1)
    rapl = Rapl(tmp_path)
    assert rapl.zones == ["intel-rapl:0", "intel-rapl:1"]
    assert rapl.total_uj() == 0
    one.write_text("671150\n")  # 328,850 to the end of the range, then 671,150
    two.write_text("1005\n")
    assert rapl.total_uj() == 1_000_000 + 1000
    two.write_text("2005\n")
    assert rapl.total_uj() == 1_000_000 + 2000


def test_rapl_says_why_it_cannot(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match="is not there"):
        Rapl(tmp_path / "powercap")
    with pytest.raises(MeterError, match="no zone of a processor package"):
        Rapl(tmp_path)
    zone(tmp_path, "intel-rapl:0", "package-0", 1).write_text("not a number\n")
    with pytest.raises(MeterError, match=r"intel-rapl:0/energy_uj cannot be read"):
        Rapl(tmp_path)


NVML_C = r"""
#include <string.h>
typedef struct nvmlDevice_st { unsigned power; const char *name; } *nvmlDevice_t;
static struct nvmlDevice_st devices[2] = {{123456, "GPU of a test"}, {250000, "another"}};
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int status) { return status == 3 ? "Not Supported" : "?"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = COUNT; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    *device = &devices[index]; return 0; }
int nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    strncpy(name, device->name, length); return 0; }
int nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *power) {
    *power = device->power; return POWER_STATUS; }
"""


def build_nvml(folder: Path, **values: int) -> str:
    """A library with nvml.h's names and types: what the loader and the calls are held against."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (folder / "nvml.c").write_text(NVML_C)
    library = folder / "libnvidia-ml.so.1"
    defines = [f"-D{name}={value}" for name, value in values.items()]
    subprocess.run(
        [compiler, "-shared", "-fPIC", *defines, "-o", str(library), str(folder / "nvml.c")],
        check=True,
        timeout=60,
    )
    return str(library)


def test_nvml_is_called_as_its_header_says(tmp_path: Path) -> None:
    nvml = Nvml(build_nvml(tmp_path, COUNT=2, POWER_STATUS=0))
    assert nvml.names == ["GPU of a test", "another"]
    assert nvml.power_mw() == [123456, 250000]
    nvml.close()


def test_nvml_says_why_it_cannot(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match="cannot be loaded"):
        Nvml(str(tmp_path / "libnvidia-ml.so.1"))
    (tmp_path / "none").mkdir()
    with pytest.raises(MeterError, match="knows no GPU"):
        Nvml(build_nvml(tmp_path / "none", COUNT=0, POWER_STATUS=0))
    (tmp_path / "silent").mkdir()
    with pytest.raises(MeterError, match="nvmlDeviceGetPowerUsage: Not Supported"):
        Nvml(build_nvml(tmp_path / "silent", COUNT=1, POWER_STATUS=3))


def nothing() -> Any:
    raise MeterError("no library")


def no_rapl() -> Any:
    raise MeterError("no folder")


def test_the_best_grade_at_hand_is_taken_unless_another_is_asked_for(tmp_path: Path) -> None:
    library = build_nvml(tmp_path, COUNT=1, POWER_STATUS=0)
    zone(tmp_path / "powercap", "intel-rapl:0", "package-0", 1)

    def nvml() -> Nvml:
        return Nvml(library)

    def rapl() -> Rapl:
        return Rapl(tmp_path / "powercap")

    assert (Meters(None, nvml, rapl).grade, Meters(None, nvml, rapl).why) == ("nvml", {})
    assert Meters("cpu", nvml, rapl).head()["why"] == {"nvml": "energy.grade is cpu"}
    lesser = Meters(None, nothing, no_rapl)
    assert lesser.head() == {
        "grade": "cpu",
        "period_ns": 10_000_000,
        "why": {"nvml": "no library", "rapl": "no folder"},
        "gpus": [],
        "zones": [],
    }
    with pytest.raises(ConfigError, match=r"energy\.grade: nvml: no library"):
        Meters("nvml", nothing, no_rapl)


def test_a_record_is_written_while_something_runs(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    scenario = load_scenario("smoke", ["clock=wall", "energy.grade=cpu"])
    start_ns = now_ns()
    with metering(scenario, records / "power-0.jsonl", lambda: {"a": os.getpid()}):
        time.sleep(0.05)
        burning_ns = now_ns()
        burn(0.1)
        end_ns = now_ns()
        time.sleep(0.05)
    meter = load_meters(tmp_path)[0]
    assert meter.head.grade == "cpu"
    assert meter.covers(burning_ns, end_ns)
    assert not meter.covers(start_ns - MS, end_ns)
    # Interpolated between samples 10 ms apart, at both ends.
    assert 0.08 < meter.cpu_s(burning_ns, end_ns) < 1.5


@pytest.mark.parametrize("overrides", [[], ["clock=wall", "energy.grade=constants"]])
def test_nothing_is_measured_where_it_is_not_wanted(tmp_path: Path, overrides: list[str]) -> None:
    scenario = load_scenario("smoke", overrides)
    with metering(scenario, tmp_path / "power-0.jsonl", dict):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_meter_that_stops_ends_the_run_with_its_name(tmp_path: Path) -> None:
    counter = zone(tmp_path / "powercap", "intel-rapl:0", "package-0", 1)
    scenario = load_scenario("smoke", ["clock=wall"])
    meters = Meters("cpu", nothing, lambda: Rapl(tmp_path / "powercap"))
    with (
        pytest.raises(MeterError, match=r"intel-rapl:0/energy_uj cannot be read"),
        metering(scenario, tmp_path / "power-0.jsonl", dict, meters),
    ):
        time.sleep(0.03)
        counter.unlink()
        time.sleep(0.05)


class _Stuck(Meters):
    """Its second sample waits, as a driver does that has hung."""

    def __init__(self) -> None:
        super().__init__("cpu", nothing, no_rapl)
        self.samples, self.reading, self.closed_while_reading = 0, False, False
        self.go_on, self.closed = threading.Event(), threading.Event()

    def sample(self, pids: dict[str, int]) -> dict[str, Any]:
        self.samples += 1
        self.reading = True
        if self.samples > 1:
            self.go_on.wait(30)
        self.reading = False
        return {}

    def close(self) -> None:
        self.closed_while_reading = self.reading
        self.closed.set()


def test_a_meter_that_hangs_is_said_and_not_closed_under_its_reader(tmp_path: Path) -> None:
    scenario, meters = load_scenario("smoke", ["clock=wall"]), _Stuck()
    with (
        pytest.raises(MeterError, match=r"has not answered for 0\.1 s"),
        metering(scenario, tmp_path / "power-0.jsonl", dict, meters, end_deadline_s=0.1),
    ):
        time.sleep(0.1)
    assert meters.samples > 1 and not meters.closed.is_set()
    meters.go_on.set()
    assert meters.closed.wait(10) and not meters.closed_while_reading


def test_a_full_disk_is_said() -> None:
    scenario = load_scenario("smoke", ["clock=wall", "energy.grade=cpu"])
    with (
        pytest.raises(RunError, match="/dev/full"),
        metering(scenario, Path("/dev/full"), dict),
    ):
        pass


HEAD = MeterHead(grade="nvml", period_ns=10 * MS, why={}, gpus=["one"], zones=["intel-rapl:0"])


def recorded() -> Meter:
    """70 W at rest; from 100 to 200 ms 700 W, from 200 to 300 ms 300 W; 50 W of packages."""
    samples = []
    for number in range(41):
        t_ms = 10 * number
        watts = 700 if 100 <= t_ms < 200 else 300 if 200 <= t_ms < 300 else 70
        samples.append(
            Sample(
                t_ns=t_ms * MS,
                cpu_ns={"a": t_ms * MS // 2, "b": t_ms * MS // 4},
                rapl_uj=50_000 * t_ms,
                gpu_mw=[watts * 1000],
            )
        )
    return Meter(HEAD, samples)


def test_power_is_cut_out_by_phase() -> None:
    meter = recorded()
    # Trapezoids: 100 to 190 ms lie at 700 W, and half of the last step is on its way to 300.
    assert meter.gpu_j(100 * MS, 190 * MS) == pytest.approx(63)
    assert meter.gpu_j(100 * MS, 200 * MS) == pytest.approx(63 + 5)
    assert meter.gpu_j(205 * MS, 285 * MS) == pytest.approx(24)
    assert meter.gpu_j(203 * MS, 204 * MS) == pytest.approx(0.3)  # between two samples
    assert meter.idle_w([(95 * MS, 305 * MS)]) == 70
    assert meter.idle_w([(0, 400 * MS)]) is None


def test_counters_are_interpolated() -> None:
    meter = recorded()
    assert meter.cpu_s(15 * MS, 35 * MS) == pytest.approx(0.015)
    assert meter.rapl_j(15 * MS, 35 * MS) == pytest.approx(1.0)
    assert meter.covers(0, 400 * MS)
    assert not meter.covers(0, 401 * MS)


def test_a_broken_record_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    path = tmp_path / "records" / "power-0.jsonl"
    path.write_text(json.dumps({"grade": "cpu"}) + "\n")
    with pytest.raises(RunError, match="not a meter's record"):
        load_meters(tmp_path)
    path.write_text("")
    with pytest.raises(RunError, match="not a meter's record"):
        load_meters(tmp_path)
