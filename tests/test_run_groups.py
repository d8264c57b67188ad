"""Which recordings are one run: windows of a process, processes of a job; the same answer in Python, in the terminal and on the pages."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import programs
import rank_folders
import stepscope
import tiny
from stepscope.cli import main
from stepscope.errors import DataError
from stepscope.io import discover, store
from stepscope.io.sources import find_sources
from stepscope.model import captures
from stepscope.model.steps.windows import join_windows
from stepscope.model.trace import Meta, Trace, Window
from stepscope.server.runs import RunList

SECOND = 10**9


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))


def recording(folder: Path, *, pid: int, at: int, rank: int = 0, parent: int = 1, long: int = 1, steps: str = "", **more: Any) -> Path:
    """A run folder as a process of our own leaves it, begun `at` seconds and `long` seconds long."""
    start, end = at * SECOND, (at + long) * SECOND
    numbers = steps.split()
    spans = f"span rank kind name start_ns dur_ns step\n0 {rank} op work {start} {end - start} {(numbers or ['-'])[0]}"
    rows = "\n".join(f"{rank} {number} {start} {end} marker" for number in numbers)
    tracks = f"rank track kind label\n{rank} 0 thread main"
    trace = tiny.trace(spans=spans, tracks=tracks, **({"steps": f"rank step start_ns end_ns how\n{rows}"} if numbers else {}))
    about = {"host": "here", "pid": pid, "parent": parent, "process": "a", "program": "train.py", "start_ns": start, "end_ns": end}
    meta = Meta(
        format="capture",
        ranks=[rank],
        world_size=more.get("world_size", 1),
        extra=about | {key: value for key, value in more.items() if key != "world_size"},
    )
    path = folder / f"rank{rank}_here_{pid}_{20260101000000000000 + at:020d}"
    store.write(Trace(trace.tables, meta), path)
    return path


def answers(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[int]:
    """The ranks that Python, `list` and the pages see in the one run that is there."""
    opened = stepscope.open(folder).meta.ranks
    (run,) = RunList([folder]).scan()
    assert run.header["ranks"] == opened
    assert main(["list", str(folder), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["path"] == str(folder) and row["ranks"] == (f"{opened[0]}-{opened[-1]}" if len(opened) > 2 else ", ".join(map(str, opened)))
    return opened


def test_windows_of_one_process_are_one_run_and_the_time_between_them_is_not_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording(tmp_path / "data", pid=7, at=10, steps="5")
    recording(tmp_path / "data", pid=7, at=14, steps="12")
    assert answers(tmp_path / "data", capsys) == [0]
    trace = stepscope.open(tmp_path / "data")
    assert trace.steps.collect()["step"].to_list() == [5, 12]
    assert trace.spans.collect()["span"].to_list() == [0, 1]
    assert trace.problems.collect()["what"].to_list() == ["not recorded between step 5 and step 12 (3.00 s)"]
    # Each step is one span long: nothing is idle, whatever happened between them.
    assert trace.overview()["busy_share"].to_list() == [1.0]
    assert trace.gaps().height == 0
    assert trace.step_trace()["gap_ns"].to_list() == [None, None]
    shares = trace.activity(buckets=5)["busy_share"].to_list()
    assert shares == [1.0, None, None, None, 1.0]


def test_steps_whose_numbers_begin_again_are_counted_on_and_problems_says_so(tmp_path: Path) -> None:
    recording(tmp_path, pid=7, at=10, steps="0 1")
    recording(tmp_path, pid=7, at=12, steps="0 1")
    trace = stepscope.open(tmp_path)
    assert trace.steps.collect()["step"].to_list() == [0, 1, 2, 3]
    assert trace.spans.collect()["step"].to_list() == [0, 2]
    assert trace.problems.collect()["what"].to_list() == [
        "step numbers begin again in window 2: steps 0 to 1 shown as steps 2 to 3",
        "not recorded between step 1 and step 2 (1.00 s)",
    ]


def test_numbers_of_spans_tracks_and_launches_stay_apart_when_windows_are_joined() -> None:
    tables = {
        "spans": """
        span track kind   name   start_ns dur_ns correlation flow_in op
        0    0     op     mm     10       5      -           -       -
        1    0     api    launch 11       1      7           -       -
        2    1     kernel gemm   20       5      7           1       0
        """,
        "tracks": "track kind label device\n0 thread main -\n1 stream s 0",
        "allocations": "bytes alloc_ns free_ns\n1 12 -\n2 - 14\n3 12 13",
    }
    first, second = tiny.trace(**tables), tiny.trace(**tables)
    later = {
        name: rows.replace("10 ", "110").replace("11 ", "111").replace("20 ", "120") for name, rows in tables.items() if name == "spans"
    }
    second = tiny.trace(**tables | {"spans": later["spans"], "tracks": "track kind label device\n0 stream s 0\n1 thread main -"})
    second = Trace(second.tables | {"spans": second.spans.with_columns(track=1 - pl.col("track"))}, second.meta)
    joined = join_windows([first, second])
    tiny.assert_rows(
        joined.spans.collect(),
        """
        span track name   correlation flow_in op parent
        0    0     mm     -           -       -  -
        1    0     launch 7           -       -  0
        2    1     gemm   7           1       0  -
        3    0     mm     -           -       -  -
        4    0     launch 15          -       -  3
        5    1     gemm   15          4       3  -
        """,
    )
    tiny.assert_rows(joined.tracks.collect(), "track label\n0 main\n1 s")
    # A block that outlives a window is known to live until its end, and one that was there before, from its start.
    tiny.assert_rows(joined.allocations.collect(), "bytes alloc_ns free_ns\n1 12 25\n2 - 14\n3 12 13\n1 12 -\n2 12 14\n3 12 13")
    assert joined.meta.windows == [Window(0, 10, 25), Window(0, 12, 125)]


def test_a_step_that_an_operator_begins_ends_with_its_window() -> None:
    first = tiny.trace(spans="span track kind name start_ns dur_ns\n0 0 op mm 10 5\n1 0 op add 20 5")
    second = tiny.trace(spans="span track kind name start_ns dur_ns\n0 0 op mm 110 5\n1 0 op add 120 5")
    given = join_windows([first, second]).with_steps("operator:mm")
    tiny.assert_rows(given.steps.collect(), "step start_ns end_ns\n0 10 25\n1 110 125")


def test_processes_of_one_job_that_all_call_themselves_rank_0_get_ranks_in_the_order_of_their_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "train-20260101-120000-42"
    for pid, at in ((30, 10), (4, 20), (200, 30)):
        recording(job, pid=pid, at=at, parent=pid)
    assert answers(job, capsys) == [0, 1, 2]
    trace = stepscope.open(job)
    assert trace.problems.collect()["what"].to_list() == [
        "3 processes, each recorded as rank 0: shown as ranks 0, 1, 2 in order of process id"
    ]
    assert trace.spans.select("rank", "start_ns").collect().rows() == [(0, 20 * SECOND), (1, 10 * SECOND), (2, 30 * SECOND)]
    one = stepscope.open(job, rank=2)
    assert one.meta.ranks == [2] and one.spans.collect()["start_ns"].to_list() == [30 * SECOND]
    assert one.problems.collect().height == 1


def test_processes_that_one_process_started_at_the_same_time_are_one_job_and_others_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = tmp_path / "both"
    recording(both, pid=3, at=10, long=5, parent=1)
    recording(both, pid=4, at=12, long=5, parent=1)
    assert answers(both, capsys) == [0, 1]
    seconds: dict[str, dict[str, Any]] = {"after": {"pid": 4, "at": 20, "parent": 1}, "elsewhere": {"pid": 4, "at": 12, "parent": 2}}
    for name, second in seconds.items():
        recording(tmp_path / name, pid=3, at=10, long=5, parent=1)
        recording(tmp_path / name, **second)
        assert len(RunList([tmp_path / name]).scan()) == 2
        assert main(["list", str(tmp_path / name), "--format", "json"]) == 0
        assert [row["ranks"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["0", "0"]
        with pytest.raises(DataError, match=r"two recordings of rank 0: .*_3_.* and .*_4_.*; open one of them .*shows the 2 runs here"):
            stepscope.open(tmp_path / name)


def test_a_process_that_got_the_id_of_another_is_another(tmp_path: Path) -> None:
    recording(tmp_path, pid=7, at=10, parent=1)
    recording(tmp_path, pid=7, at=20, parent=1, process="b")
    assert len(RunList([tmp_path]).scan()) == 2


def test_a_copy_of_a_recording_beside_it_is_no_window_of_it(tmp_path: Path) -> None:
    path = recording(tmp_path / "data", pid=7, at=10)
    store.write(stepscope.open(path), tmp_path / "data" / "copy")
    assert len(list(discover.groups(list(find_sources(tmp_path / "data"))))) == 2


def test_ranks_of_a_job_keep_their_ranks_with_all_their_windows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        for at in (10, 500):
            recording(tmp_path / "data", pid=3 + rank, at=at + rank, rank=rank, world_size=2, steps=str(at))
    assert answers(tmp_path / "data", capsys) == [0, 1]
    trace = stepscope.open(tmp_path / "data")
    assert trace.steps.select("rank", "step").collect().rows() == [(0, 10), (0, 500), (1, 10), (1, 500)]
    assert trace.meta.windows == [Window(rank, (at + rank) * SECOND, (at + rank + 1) * SECOND) for rank in (0, 1) for at in (10, 500)]


_TWO_WINDOWS = """
import sys
from stepscope import Profiler, record_function, schedule, tensorboard_trace_handler

with Profiler(schedule=schedule(wait=1, active=2, repeat=2), on_trace_ready=tensorboard_trace_handler(sys.argv[1])) as profiler:
    for _ in range(7):
        with record_function("work"):
            sum(range(1000))
        profiler.step()
"""


def test_the_windows_of_a_schedule_open_as_one_run(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _TWO_WINDOWS, str(tmp_path / "data")], check=True, capture_output=True, timeout=120)
    assert len(list(find_sources(tmp_path / "data"))) == 2
    trace = stepscope.open(tmp_path / "data")
    assert trace.steps.collect()["step"].to_list() == [1, 2, 4, 5]
    assert [what.split(" (")[0] for what in trace.problems.collect()["what"]] == ["not recorded between step 2 and step 4"]
    assert trace.annotations().filter(pl.col("name") == "work")["calls"].sum() == 4


SHARED = Path(__file__).parents[2] / "shared" / "data"
MINDSPORE = SHARED / "mindspore_cpu" / "schedule_two_windows_memory"


@pytest.mark.skipif(not MINDSPORE.is_dir(), reason="no real data beside the project")
def test_the_windows_that_mindspores_own_schedule_wrote_are_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "data"
    shutil.copytree(MINDSPORE, folder)
    assert _is_one_run(folder, capsys)
    trace = stepscope.open(folder)
    assert trace.problems.collect()["what"].to_list() == [
        "no step markers: each step is one run of the graph",
        "step numbers begin again in window 2: steps 0 to 1 shown as steps 2 to 3",
        "not recorded between step 1 and step 2 (1.08 s)",
    ]
    assert trace.step_trace()["gap_ns"].to_list() == [None, 0, None, 0]
    # Its second window repeats the 160 rows of memory of the first one: 320 rows of two counters.
    assert trace.counters.collect().height == 640
    (_, end), (start, _) = [(window.from_ns, window.to_ns) for window in trace.meta.windows]
    assert (end, start) == (1794706324326094932, 1794706325403299222)


def _is_one_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> bool:
    """Whether `list` and the pages see one run, with the two windows that are there."""
    (run,) = RunList([folder]).scan()
    assert main(["list", str(folder), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    return run.path == Path(row["path"]) == folder and len(run.sources) == 2


_STOCK_TORCH = """
import sys, torch
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

handler = tensorboard_trace_handler(sys.argv[1], *sys.argv[2:3], use_gzip=True)
for _ in range(2):  # two profilers of one process
    two_windows = schedule(wait=1, warmup=0, active=2, repeat=2)
    with profile(activities=[ProfilerActivity.CPU], schedule=two_windows, on_trace_ready=handler) as profiler:
        for _ in range(7):
            torch.ones(8).add(1)
            profiler.step()
"""


@pytest.mark.parametrize("worker", [[], ["my_worker"]], ids=["host and process", "name of the user"])
def test_the_windows_of_torch_profilers_schedule_are_one_run_and_those_of_another_profiler_another(
    worker: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs.needs("torch")
    folder = tmp_path / "logs"
    subprocess.run([sys.executable, "-c", _STOCK_TORCH, str(folder), *worker], check=True, capture_output=True, timeout=300)
    files = sorted(folder.iterdir())
    groups = list(discover.groups(list(find_sources(folder))))
    assert [[source.path for source in group.sources] for group in groups] == [files[:2], files[2:]]
    assert all(len(group.recordings) == 1 for group in groups)
    for file in files[2:]:
        file.unlink()
    assert _is_one_run(folder, capsys)
    trace = stepscope.open(folder)
    assert trace.steps.collect()["step"].to_list() == [1, 2, 4, 5]
    assert trace.spans.filter(pl.col("name").cast(pl.String) == "aten::add").select("step").collect()["step"].to_list() == [1, 2, 4, 5]
    assert [what.split(" (")[0] for what in trace.problems.collect()["what"]] == ["not recorded between step 2 and step 4"]


def _ascend_result(folder: Path, name: str, rank: int | None, step: str) -> Path:
    output = folder / name / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    (output / "step_trace_time.csv").write_text(f"Step,Computing,Free\n{step},1.0,1.0\n")
    if rank is not None:
        (folder / name / f"profiler_info_{rank}.json").write_text("{}")
    return folder / name


def test_windows_of_torch_npu_belong_to_their_process_and_their_processes_to_the_job_that_started_them(tmp_path: Path) -> None:
    for name, rank, step in [
        ("host_7_20260101120000000_ascend_pt", 0, "5"),
        ("host_8_20260101120001000_ascend_pt", 1, "5"),
        ("host_7_20260101121500000_ascend_pt", 0, "15"),  # 15 minutes later
        ("host_8_20260101121501000_ascend_pt", 1, "15"),
        ("host_9_20260101130000000_ascend_pt", 0, "5"),  # another job of the same ranks
        ("host_10_20260101130001000_ascend_pt", 1, "5"),
        ("host_7_20260102120000000_ascend_pt", 0, "5"),  # the same process id in a container, the steps begin again
        ("worker_20260101120000000_ascend_pt", 2, ""),  # a name of the user, and nothing tells two jobs of that name apart
        ("worker_20260101140000000_ascend_pt", 2, ""),
    ]:
        _ascend_result(tmp_path, name, rank, step)
    runs = [
        [[source.path.name.removesuffix("_ascend_pt") for source in recording.sources] for recording in group.recordings]
        for group in discover.groups(list(find_sources(tmp_path)))
    ]
    assert sorted(runs) == [
        [
            ["host_7_20260101120000000", "host_7_20260101121500000"],
            ["host_8_20260101120001000", "host_8_20260101121501000"],
            ["worker_20260101120000000"],
        ],
        [["host_7_20260102120000000"]],
        [["host_9_20260101130000000"], ["host_10_20260101130001000"]],
        [["worker_20260101140000000"]],
    ]


_PROCESSES = """
import os, sys
import stepscope

if len(sys.argv) == 1:
    import subprocess
    started = [subprocess.Popen([sys.executable, sys.argv[0], "part"]) for _ in range(3)]
    sys.exit(max(one.wait() for one in started))
with stepscope.record_function("work"):
    sum(range(1000))
"""


def test_what_run_recorded_of_processes_that_are_all_rank_0_opens_with_the_command_that_it_prints(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(_PROCESSES)
    words = [sys.executable, "-m", "stepscope", "run", "--out", "data", "--seconds", "60", str(script)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    (line,) = [line for line in done.stderr.splitlines() if "open it with" in line]
    folder = tmp_path / line.rpartition(" ")[2]
    assert folder.parent == tmp_path / "data"
    trace = stepscope.open(folder)
    assert trace.meta.ranks == [0, 1, 2]
    assert trace.annotations().filter(pl.col("name") == "work").select("rank", "calls").rows() == [(0, 1), (1, 1), (2, 1)]


def test_a_capture_says_which_process_made_it(tmp_path: Path) -> None:
    output = captures.Capture(tmp_path / "a.capture", {}).header
    again = captures.Capture(tmp_path / "b.capture", {}).header
    assert output["process"] == again["process"] and output["parent"] == again["parent"] > 0


def test_ranks_in_a_folder_for_each_node_are_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(4):
        store.write(rank_folders.trace(rank, 4, own_ns=500_000), tmp_path / "job" / f"node{rank // 2}" / f"rank{rank}")
    assert answers(tmp_path / "job", capsys) == [0, 1, 2, 3]


@pytest.mark.parametrize("ranks", [(0, 1, 0, 1), (0, 1, 1, 2)])
def test_folders_that_both_have_a_rank_are_two_runs(ranks: tuple[int, ...], tmp_path: Path) -> None:
    for at, rank in enumerate(ranks):
        store.write(rank_folders.trace(rank, 4, own_ns=500_000), tmp_path / "jobs" / f"run{at // 2}" / f"rank{rank}")
    assert [run.header["ranks"] for run in RunList([tmp_path / "jobs"]).scan()] == [list(ranks[:2]), list(ranks[2:])]


def test_folders_of_complete_jobs_are_runs_of_their_own(tmp_path: Path) -> None:
    for rank in range(4):
        store.write(rank_folders.trace(rank, 2, own_ns=500_000), tmp_path / "jobs" / f"run{rank // 2}" / f"rank{rank}")
    assert len(RunList([tmp_path / "jobs"]).scan()) == 2


def test_a_rank_beyond_the_size_of_the_job_is_named_with_the_ranks_that_are_missing(tmp_path: Path) -> None:
    for rank in (0, 1, 5):
        store.write(rank_folders.trace(rank, 2, own_ns=500_000), tmp_path / "job" / f"rank{rank}")
    trace = stepscope.open(tmp_path / "job")
    assert trace.ranks()["state"].to_list() == ["recorded", "recorded", "missing", "missing", "missing", "recorded"]
    (problem,) = trace.problems.collect().iter_rows(named=True)
    assert (problem["rank"], problem["what"]) == (5, "the recordings say that the job has 2 ranks, but there is a recording of rank 5")


def test_two_recordings_of_a_rank_are_both_named(tmp_path: Path) -> None:
    for folder, rank in (("", 0), ("", 1), ("again", 1)):
        store.write(rank_folders.trace(rank, 2, own_ns=500_000), tmp_path / "job" / folder / f"rank{rank}")
    with pytest.raises(DataError, match=r"two recordings of rank 1: \S+/job/rank1 and \S+/job/again/rank1; open one of them"):
        stepscope.open(tmp_path / "job")
