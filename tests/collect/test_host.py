"""The host's counters, held against what the standard library says of the same time."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import polars as pl
import pytest

import stepscope
from programs import needs
from stepscope.model import captures
from stepscope.process import clock
from stepscope.readers.capture.tables import load_table
from stepscope.recording.collectors import host
from stepscope.recording.collectors.options import HostSystem, Options

pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc here")
SOURCE = Path(stepscope.__file__).parent.parent


class Recording:
    """Counters of what happens inside the `with`."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.capture = captures.Capture(folder / "host.capture", {"rank": 0})
        self.collector = host.Collector(Options(**options))  # type: ignore[arg-type]

    def __enter__(self) -> "Recording":
        self.start_ns = clock.now_ns()
        self.collector.start(self.capture)
        return self

    def __exit__(self, *error: object) -> None:
        self.collector.stop()
        self.end_ns = clock.now_ns()
        self.capture.finish()

    def rows(self, name: str) -> pl.DataFrame:
        return self.all().filter(pl.col("name").cast(pl.String) == name).sort("at_ns")

    def all(self) -> pl.DataFrame:
        return load_table(self.capture.folder, "counters")

    def total(self, name: str) -> float:
        """A rate times the time it holds for: what passed since the first sample."""
        rows = self.rows(name)
        times = [self.rows("sampling cost")["at_ns"].min(), *rows["at_ns"]]
        return sum(value * (end - start) / 1e9 for value, start, end in zip(rows["value"], times[:-1], times[1:], strict=True))


class _Clock:
    """Stands still while a sample is taken, so that what passes between two samples is what their rates say, however busy the machine."""

    now = 0

    def now_ns(self) -> int:
        return self.now


@pytest.fixture
def one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    still, sample = _Clock(), host.Collector._sample

    def at_once(self: host.Collector, *, ends: bool = False) -> None:
        still.now = clock.now_ns()
        sample(self, ends=ends)

    monkeypatch.setattr(host, "clock", still)
    monkeypatch.setattr(host.Collector, "_sample", at_once)


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))


@pytest.mark.usefixtures("one_moment")
@pytest.mark.parametrize("interval", [10, 1000])
def test_the_cpu_time_of_the_process_is_what_the_clock_of_python_says(tmp_path: Path, interval: int) -> None:
    recording = Recording(tmp_path, host_interval_ms=interval)
    with recording:
        before = time.process_time()
        burn(0.4)
        used = time.process_time() - before
    name = f"process {os.getpid()} cpu"
    assert recording.total(f"{name} user") + recording.total(f"{name} system") == pytest.approx(used, rel=0.1, abs=0.02)


@pytest.mark.usefixtures("one_moment")
def test_the_cpu_time_of_a_child_is_what_the_child_itself_says(tmp_path: Path) -> None:
    script = (
        "import time\nbegan = time.process_time()\nprint(began, flush=True)\ninput()\n"
        "while time.process_time() < began + 0.6: pass\nprint(time.process_time(), flush=True)\ninput()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin
        assert child.stdout
        began = float(child.stdout.readline())
        recording = Recording(tmp_path, host_interval_ms=50)
        with recording:
            child.stdin.write("\n")
            child.stdin.flush()
            output = float(child.stdout.readline())
        child.communicate("\n")
    name = f"child {child.pid} cpu"
    assert output - began >= 0.6
    # Ticks are 10 ms, of user and of system time.
    assert output - began - 0.03 <= recording.total(f"{name} user") + recording.total(f"{name} system") <= output - began + 0.03
    assert (recording.rows(f"child {child.pid} memory")["value"] > 1 << 20).all()


def test_the_shares_of_the_machine_add_up_to_one(tmp_path: Path) -> None:
    recording = Recording(tmp_path, host_interval_ms=20)
    with recording:
        burn(0.3)
    shares = recording.all().filter(pl.col("unit").cast(pl.String) == "share")
    sums = shares.group_by("at_ns").agg(pl.col("value").sum(), pl.len())
    assert sums.height > 1
    assert sums["len"].to_list() == [5] * sums.height
    assert sums["value"].to_list() == pytest.approx([1.0] * sums.height)
    assert recording.rows("cpu user")["value"].sum() > 0


def test_memory_is_that_of_the_machine_and_of_the_process(tmp_path: Path) -> None:
    recording = Recording(tmp_path, host_interval_ms=20)
    with recording:
        held = bytearray(64 << 20)
        held[:: os.sysconf("SC_PAGE_SIZE")] = b"x" * len(held[:: os.sysconf("SC_PAGE_SIZE")])
    used, available = (recording.rows(f"memory {word}")["value"].to_list() for word in ("used", "available"))
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert [one + other for one, other in zip(used, available, strict=True)] == [machine] * len(used)
    own = recording.rows(f"process {os.getpid()} memory")["value"].to_list()
    assert own[-1] - own[0] == pytest.approx(len(held), rel=0.3)
    assert recording.rows("cpu cores")["value"].to_list() == [os.cpu_count()]


def test_however_short_the_window_the_first_sample_is_at_its_start_and_the_last_at_its_end(tmp_path: Path) -> None:
    recording = Recording(tmp_path, host_interval_ms=3_600_000)
    with recording:
        pass
    at = recording.rows("memory used")["at_ns"]
    assert at.len() == 2
    assert recording.start_ns <= at[0] < at[1] <= recording.end_ns
    assert recording.rows("context switches")["at_ns"].to_list() == [at[1]]
    assert recording.rows("disk read").height == 1
    assert recording.rows("network sent").height == 1


def test_what_a_sample_costs_is_a_counter_too(tmp_path: Path) -> None:
    recording = Recording(tmp_path, host_interval_ms=10)
    with recording:
        first = recording.collector._count
        while recording.collector._count == first:
            time.sleep(0.01)
    cost = recording.rows("sampling cost")
    assert cost.height == recording.rows("memory used").height > 2
    assert (cost["value"] > 0).all()


def test_no_thread_of_ours_is_left(tmp_path: Path) -> None:
    def ours() -> int:
        return [thread.name for thread in threading.enumerate()].count("stepscope host")

    with Recording(tmp_path, host_interval_ms=10):
        assert ours() == 1
    assert ours() == 0


def test_sampling_ends_at_the_bound_and_says_so(tmp_path: Path) -> None:
    recording = Recording(tmp_path, host_interval_ms=1, max_events=100)
    with recording:
        thread = recording.collector._thread
        assert thread
        thread.join(300)
        assert not thread.is_alive()
    assert [output["what"] for output in recording.capture.header["notices"]] == [
        "the host was sampled up to max_events=100: later samples are missing"
    ]


def test_what_is_not_recorded_is_said(tmp_path: Path) -> None:
    recording = Recording(tmp_path, host_sys=(HostSystem.CPU, HostSystem.OSRT))
    with recording:
        pass
    assert "osrt" in recording.capture.header["notices"][0]["what"]


def test_a_killed_job_keeps_what_was_sampled(tmp_path: Path) -> None:
    script = """
        import sys, time
        from pathlib import Path
        from stepscope.model import captures
        from stepscope.recording.collectors import host
        from stepscope.recording.collectors.options import Options
        host._FLUSH_S = 0.05
        capture = captures.Capture(Path(sys.argv[1]), {"rank": 0})
        collector = host.Collector(Options(host_interval_ms=10))
        collector.start(capture)
        while len(list(capture.folder.glob("counters.*.npz"))) < 3: time.sleep(0.01)
        print(flush=True)
        time.sleep(600)
    """
    folder = tmp_path / "job.capture"
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(folder)], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(SOURCE)}
    ) as job:
        assert job.stdout
        job.stdout.readline()
        job.send_signal(signal.SIGKILL)
    trace = stepscope.open(folder, cache=False)
    assert trace.counters.filter(pl.col("name").cast(pl.String) == "memory used").collect().height >= 3
    assert "the job ended while recording: the trace contains what had been written" in trace.problems.collect()["what"].to_list()


def test_workers_of_a_data_loader_are_called_data_workers(tmp_path: Path) -> None:
    needs("torch")
    script = """
        import sys, subprocess
        from pathlib import Path
        from torch.utils.data import DataLoader
        from stepscope.model import captures
        from stepscope.recording.collectors import host
        from stepscope.recording.collectors.options import Options
        if __name__ == "__main__":
            other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
            batches = iter(DataLoader(range(100), num_workers=2))
            next(batches)
            capture = captures.Capture(Path(sys.argv[1]), {"rank": 0})
            collector = host.Collector(Options(host_interval_ms=10))
            collector.start(capture)
            collector.stop()
            capture.finish()
            print(*sorted(worker.pid for worker in batches._workers), other.pid)
            other.kill()
    """
    (tmp_path / "job.py").write_text(textwrap.dedent(script))
    done = subprocess.run(
        [sys.executable, str(tmp_path / "job.py"), str(tmp_path / "job.capture")],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )
    *workers, other = done.stdout.split()
    names = set(load_table(tmp_path / "job.capture", "counters")["name"].cast(pl.String))
    assert {name.split()[2] for name in names if name.startswith("data worker ")} == set(workers)
    assert other in {name.split()[1] for name in names if name.startswith("child ")}


def test_psutil_tells_the_same_where_there_is_no_proc(tmp_path: Path) -> None:
    psutil = pytest.importorskip("psutil")
    ours, theirs = host._Proc(), host._Psutil(psutil)
    one, other = ours.totals(everything=True), theirs.totals(everything=True)
    assert other.keys() <= one.keys()
    for name in ("cpu user", "cpu idle", f"process {os.getpid()} cpu user"):
        assert other[name][0] == pytest.approx(one[name][0], rel=0.01, abs=_LOOSE[name.startswith("cpu")])
    at, their_own = {row[0]: row[1] for row in ours.gauges()}, {row[0]: row[1] for row in theirs.gauges()}
    assert their_own.keys() <= at.keys()
    assert their_own[f"process {os.getpid()} memory"] == pytest.approx(at[f"process {os.getpid()} memory"], rel=0.1)


_LOOSE = {True: 1000, False: 0.05}  # ticks of the machine, seconds of the process
