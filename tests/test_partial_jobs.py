"""Jobs of which not every rank can be read: the others open, the rest is listed with the reason; in Python, terminal and pages alike."""

import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope
import tiny
from stepscope.cli import main
from stepscope.errors import DataError, UnknownFormatError
from stepscope.io import discover, foreign_jobs, open_run, store
from stepscope.io.open_source import SourceOpener
from stepscope.io.sources import find_sources
from stepscope.model.trace import Meta, Trace
from stepscope.server.runs import RunList
from volume import every

SAMPLES = Path(__file__).parent / "samples"
SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))


def kineto(file: Path, rank: int) -> Path:
    """One step with an operator, as PyTorch writes it."""
    events = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 100, "dur": 50},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 110 + rank, "dur": 20},
    ] * 40
    text = json.dumps({"schemaVersion": 1, "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2}, "traceEvents": events})
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    return file


def copied(source: Path, target: Path) -> Path:
    """A copy that may be written to."""
    if not source.exists():
        pytest.skip("no shared data beside the project")
    shutil.copytree(source, target)
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


def run_folder(path: Path, rank: int) -> Path:
    start = 10**9
    trace = tiny.trace(
        spans=f"span rank kind name start_ns dur_ns step\n0 {rank} op work {start} 500 1",
        tracks=f"rank track kind label\n{rank} 0 thread main",
        steps=f"rank step start_ns end_ns how\n{rank} 1 {start} {start + 1000} marker",
    )
    about = {"host": "here", "pid": rank + 1, "parent": 9, "process": "a", "start_ns": start, "end_ns": start + 1000}
    store.write(Trace(trace.tables, Meta(format="capture", ranks=[rank], world_size=2, extra=about)), path)
    return path


# Two ranks of a job each, and the recording of the second.
Job = Callable[[Path], Path]


def files_by_rank(job: Path) -> Path:
    return [kineto(job / f"ddp_rank{rank}.json", rank) for rank in range(2)][1]


def packed_files_by_rank(job: Path) -> Path:
    return [kineto(job / f"ddp_rank{rank}.json.gz", rank) for rank in range(2)][1]


def files_of_which_one_is_packed(job: Path) -> Path:
    return [kineto(job / f"ddp_rank{rank}.json{'.gz' * rank}", rank) for rank in range(2)][1]


def files_by_process(job: Path) -> Path:
    return [kineto(job / f"node_{rank + 100}.170000000000{rank}.pt.trace.json", rank) for rank in range(2)][1]


def folders_by_rank(job: Path) -> Path:
    return [kineto(job / f"rank_{rank}" / "trace.json", rank).parent for rank in range(2)][1]


def torch_npu_text(job: Path) -> Path:
    names = [job / f"node_{rank + 100}_2025010915481{rank}123_ascend_pt" for rank in range(2)]
    return [copied(SHARED / f"ascend/torch_npu/text/level1/rank{rank}_ascend_pt", name) for rank, name in enumerate(names)][1]


def torch_npu_db(job: Path) -> Path:
    sources = [SHARED / f"ascend/torch_npu/db/level1/rank{rank}_ascend_pt" for rank in range(2)]
    return [copied(source, job / source.name) for source in sources][1]


def msprof_2023(job: Path) -> Path:
    sources = sorted((SHARED / "ascend/prof_2023").glob("PROF_*")) or [SHARED / "absent"]
    return [copied(source, job / source.name) for source in sources][1]


def raw_prof(job: Path) -> Path:
    (source,) = (SAMPLES / "prof/written-by-tests").glob("PROF_*")
    for rank in range(2):
        target = copied(source, job / f"PROF_000001_2023111422132000{rank}_ABCDEFG{'HI'[rank]}")
        for info in target.glob("*/info.json*"):
            if not info.name.endswith(".done"):
                info.write_text(json.dumps(json.loads(info.read_text()) | {"rank_id": rank}))
    return target


def jax_hosts(job: Path) -> Path:
    job.mkdir()
    for rank in range(2):
        shutil.copyfile(SAMPLES / "xplane/jax-0.10.2-cpu/train.xplane.pb", file := job / f"host-{rank}.xplane.pb")
    return file


def run_folders(job: Path) -> Path:
    return [run_folder(job / f"rank{rank}_here_{rank + 1}_{20260101000000000000 + rank:020d}", rank) for rank in range(2)][1]


JOBS: list[Job] = [
    files_by_rank, packed_files_by_rank, files_of_which_one_is_packed, files_by_process, folders_by_rank, torch_npu_text, torch_npu_db,
    msprof_2023, raw_prof, jax_hosts, run_folders,
]  # fmt: skip


# What can be wrong with a recording.


def files_of(path: Path) -> Iterator[Path]:
    return iter([path]) if path.is_file() else (file for file in sorted(path.rglob("*")) if file.is_file())


def emptied(path: Path) -> None:
    for file in files_of(path):
        file.write_bytes(b"")


def cut(path: Path) -> None:
    for file in files_of(path):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 3])


def of_another_type(path: Path) -> None:
    for file in files_of(path):
        file.write_bytes(b"no trace\n" * 20)


def hollow(path: Path) -> None:
    """A folder in place of a file, without its files where it was one."""
    if path.is_file():
        path.unlink()
        path.mkdir()
    for file in files_of(path):
        file.unlink()


def lost_link(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(path.parent / "gone")


DAMAGES: list[Callable[[Path], None]] = [emptied, cut, of_another_type, hollow, lost_link]


# Each kind of job with one or two kinds of damage, each kind of damage with several kinds of jobs.
@pytest.mark.parametrize(
    ("make", "damage"), every([(make, damage) for make in JOBS for damage in DAMAGES], 3), ids=lambda function: function.__name__
)
def test_a_broken_rank_hides_no_other_and_is_listed_with_the_reason(
    make: Job, damage: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job"
    broken = make(job)
    whole = stepscope.open(job, rank=0).overview().to_dicts()
    damage(broken)
    foreign_jobs.described_rank.cache_clear()  # a process that looks at a folder while it changes is another matter

    trace = stepscope.open(job)
    assert 0 in trace.meta.ranks
    assert trace.analyse("overview", rank=0).to_dicts() == whole
    assert_rank_1_is_known_of(trace.meta.ranks, trace.problems.collect().to_dicts())

    assert main(["list", str(job), "--deep", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["path"] for row in rows] == [str(job)]
    if trace.meta.ranks == [0]:
        assert "not shown: " in rows[0]["problems"]

    assert main(["summary", str(job), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ranks"] == trace.meta.ranks
    assert_rank_1_is_known_of(found["ranks"], found["problems"])

    (run,) = RunList([job]).scan()
    assert run.state == "finished" and run.path == job and run.name in ("job", "ddp", "job 2026-01-01 00:00:00")
    served = open_run.open_ranks(list(run.sources), run.path, SourceOpener(), unread=run.unread)
    assert served.meta.ranks == trace.meta.ranks
    assert_rank_1_is_known_of(served.meta.ranks, served.problems.collect().to_dicts())


def assert_rank_1_is_known_of(ranks: list[int], problems: list[dict[str, Any]]) -> None:
    """It is shown, with a word on what is lost, or it is not, and the reason is there."""
    own = [row for row in problems if row["rank"] in (1, None) and row["lost"]]
    assert own, "nothing says that something is missing"
    assert 1 in ranks or any("not shown: " in row["what"] for row in own)


def forbid(path: Path) -> None:
    path.chmod(0)


@pytest.mark.parametrize(
    "make", [files_by_rank, folders_by_rank, torch_npu_text, torch_npu_db, raw_prof, jax_hosts], ids=lambda one: one.__name__
)
def test_a_rank_that_may_not_be_looked_at_hides_no_other(make: Job) -> None:
    """Nothing is forbidden to root: it looks as somebody else."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        job = Path(place) / "job"
        make(job).chmod(0)
        user = os.geteuid()
        try:
            os.seteuid(user or 65534)
            trace = stepscope.open(job, cache=False)
            problems, ranks = trace.problems.collect(), trace.meta.ranks
        finally:
            os.seteuid(user)
        for path in job.rglob("*"):
            path.chmod(0o755)
    assert ranks == [0]
    assert problems.filter(pl.col("what").str.contains("not shown: Permission denied"))["rank"].to_list() in ([1], [None])


def test_the_rank_that_is_asked_for_says_why_it_is_not_there(tmp_path: Path) -> None:
    cut(files_by_rank(tmp_path / "job"))
    with pytest.raises(DataError, match=r"ddp_rank1\.json.*cut off"):
        stepscope.open(tmp_path / "job", rank=1)
    assert stepscope.open(tmp_path / "job", rank=0).problems.collect().filter(pl.col("rank") == 1).is_empty()


def test_where_no_rank_can_be_read_the_error_is_the_first_ones(tmp_path: Path) -> None:
    files_by_rank(tmp_path / "job")
    cut(tmp_path / "job" / "ddp_rank0.json")
    cut(tmp_path / "job" / "ddp_rank1.json")
    with pytest.raises(DataError, match=r"ddp_rank0\.json.*cut off"):
        stepscope.open(tmp_path / "job")
    emptied(tmp_path / "job" / "ddp_rank0.json")
    emptied(tmp_path / "job" / "ddp_rank1.json")
    with pytest.raises(UnknownFormatError, match=r"ddp_rank0\.json: the file is empty \(and 1 more\)"):
        stepscope.open(tmp_path / "job")


def test_a_recording_of_another_job_is_no_missing_rank(tmp_path: Path) -> None:
    """Two traces without ranks are two runs: that one of them is damaged does not make them one."""
    kineto(tmp_path / "job" / "a.json", 0)
    cut(kineto(tmp_path / "job" / "b.json", 0))
    with pytest.raises(DataError, match="cut off"):
        stepscope.open(tmp_path / "job")
    (tmp_path / "job" / "rank3_notes").mkdir()
    (tmp_path / "job" / "b.json").unlink()
    assert stepscope.open(tmp_path / "job").problems.collect().filter(pl.col("lost") > 0).is_empty()


def test_a_result_that_does_not_say_its_rank_does_not_hide_the_job(tmp_path: Path) -> None:
    """It would be taken for rank 0, of which there would then be two."""
    job = tmp_path / "job"
    for rank in range(3):
        name = job / f"node_{rank + 100}_2025010915481{rank}123_ascend_pt"
        copied(SHARED / f"ascend/torch_npu/text/level0/rank{min(rank, 1)}_ascend_pt", name)
    for file in name.glob("profiler_info*.json"):
        file.unlink()
    trace = stepscope.open(job)
    assert trace.meta.ranks == [0, 1]
    rows = trace.problems.collect().filter(pl.col("file") == str(name))
    assert rows["what"].to_list() == ["not shown: the recording does not contain its rank; open it alone"]
    (run,) = RunList([job]).scan()
    assert run.row()["problems"][0]["file"] == str(name)


def test_a_window_that_is_damaged_does_not_hide_the_others_of_its_process(tmp_path: Path) -> None:
    first, second = (run_folder(tmp_path / "job" / f"rank0_here_1_{20260101000000000000 + at:020d}", 0) for at in (0, 60))
    header = json.loads((second / "run.json").read_text())
    header["extra"] |= {"start_ns": 2 * 10**9, "end_ns": 2 * 10**9 + 1000}
    (second / "run.json").write_text(json.dumps(header))
    for table in second.glob("*.parquet"):
        table.write_bytes(table.read_bytes()[:10])
    trace = stepscope.open(tmp_path / "job")
    assert trace.steps.collect().height == 1
    assert any("not shown" in what for what in trace.problems.collect()["what"])
    assert first.exists()


def test_a_rank_that_is_there_compressed_and_not_is_two_runs(tmp_path: Path) -> None:
    for rank, form in ((0, ".json"), (0, ".json.gz"), (1, ".json")):
        kineto(tmp_path / "job" / f"ddp_rank{rank}{form}", rank)
    found = [sorted(source.path.name for source in group.sources) for group in discover.groups(list(find_sources(tmp_path / "job")))]
    assert sorted(found) == [["ddp_rank0.json", "ddp_rank1.json"], ["ddp_rank0.json.gz"]]
