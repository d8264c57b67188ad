"""`stepscope cluster summarize`: the same tables as the ranks themselves, from a folder without spans."""

import os
import signal
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import rank_folders
import stepscope
from settling import until
from stepscope.cli import main
from stepscope.cluster import summaries, summarize
from stepscope.cluster.pool import pool
from stepscope.cluster.tasks import Merge
from stepscope.cluster.tree import Tree
from stepscope.errors import DataError, UsageError
from stepscope.io import store
from stepscope.io.inventory import inventory
from stepscope.model import rank_tables, schema
from stepscope.model.trace import analysis, analysis_names

SAMPLES = Path(__file__).parents[1] / "samples"
ANSWERED = [name for name in analysis_names() if rank_tables.is_answered(name, analysis(name).topic)]
OWN = ["straggler_analysis/by-hand", "cluster_output/by-hand", "flight_recorder/torch-2.13.0", "xplane/jax-0.10.2-cpu", "chrome/torch-2.11"]
OTHERS = [
    "torch_public/two_ranks",
    "ascend/torch_npu/db/level1",
    "ascend/prof_2023",
    "straggler/trace-SE.parquet",
    "torch_h200/ddp_gloo_rank0.json.gz",
]


@pytest.mark.parametrize("name", OWN)
def test_a_summary_has_the_tables_of_its_ranks(name: str, tmp_path: Path) -> None:
    assert_same_tables(SAMPLES / name, tmp_path)


@pytest.mark.parametrize("name", OTHERS)
def test_a_summary_of_real_ranks_has_their_tables(name: str, shared: Path, tmp_path: Path) -> None:
    assert_same_tables(shared / name, tmp_path)


def assert_same_tables(path: Path, folder: Path) -> None:
    ranks, summary = stepscope.open(path), summarize(path, folder / "summary", workers=1)
    assert summary is not None
    assert summary.spans.select(pl.len()).collect().item() == 0
    for name in ANSWERED:
        if name != "verdict":  # its topics of operators and kernels need spans
            assert_frame_equal(summary.analyse(name), ranks.analyse(name), check_row_order=name != "hangs", rel_tol=1e-12)
    sentences = [trace.verdict(topic="hangs")["text"].to_list() for trace in (summary, ranks)]
    assert sentences[0] == sentences[1]


def test_a_summary_has_the_columns_of_its_analyses() -> None:
    analyses = {
        "rank_overlap": "overlap",
        "rank_step_trace": "step_trace",
        "rank_operator_types": "operator_types",
        "rank_memory_peaks": "memory_peaks",
    }
    for table, name in analyses.items():
        assert schema.TABLES[table] == analysis(name).columns


def test_the_slow_rank_of_a_summary_is_the_slow_rank_of_the_job(tmp_path: Path) -> None:
    ranks = rank_folders.write(tmp_path / "job", 5, slow=3)
    summary = summarize(ranks, tmp_path / "summary", workers=2)
    assert summary is not None
    slow = summary.analyse("stragglers").row(0, named=True)
    # It computes 0.7 ms a step, the others 0.5 ms.
    assert (slow["rank"], slow["cause"], slow["excess_ns"], slow["slow_steps"]) == (3, "compute", 200_000, 6)
    figures = summary.table("rank_figures").collect()
    assert figures["spans"].to_list() == [36] * 5
    assert (
        inventory(summary).kinds
        == inventory(stepscope.open(ranks)).kinds
        == {"api": 60, "communication": 30, "data": 30, "kernel": 30, "step": 30}
    )
    assert figures["source"].to_list() == [str(ranks / f"rank{rank}") for rank in range(5)]


def test_some_steps_and_ranks_of_a_summary_are_those_of_the_ranks(tmp_path: Path) -> None:
    job = rank_folders.write(tmp_path / "job", 3)
    ranks, summary = stepscope.open(job), summarize(job, tmp_path / "summary", workers=1)
    assert summary is not None
    for name in ("overview", "overlap", "cluster_steps", "stragglers", "communication"):
        assert_frame_equal(summary.analyse(name, rank=1), ranks.analyse(name, rank=1))
        assert_frame_equal(summary.analyse(name, steps=(2, 4)), ranks.analyse(name, steps=(2, 4)))
    with pytest.raises(UsageError, match="of all steps together"):
        summary.analyse("operator_types", steps=(2, 4))


def test_a_summary_refuses_what_needs_spans(tmp_path: Path) -> None:
    summary = summarize(rank_folders.write(tmp_path / "job", 2), tmp_path / "summary", workers=1)
    assert summary is not None
    with pytest.raises(UsageError, match="is a summary, which has no data for kernels"):
        summary.analyse("kernels")
    with pytest.raises(UsageError, match="is a summary, which has no operators"):
        summary.analyse("step_trace", clock="device")
    with pytest.raises(UsageError, match="is a summary, which has no operators of links"):
        summary.analyse("links", op="x")


@pytest.mark.parametrize("words", [["summary"], ["show", "stragglers"], ["show", "overview"], ["list"]])
def test_every_command_opens_a_summary(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rank_folders.write(tmp_path / "job", 3)
    assert main(["cluster", "summarize", str(tmp_path / "job"), "-o", str(tmp_path / "summary"), "--workers", "1"]) == 0
    assert main([*words, str(tmp_path / "summary")]) == 0
    output = capsys.readouterr().out
    assert "rank" in output
    assert "no operators" not in output


def test_the_number_of_processes_changes_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "_BATCH_PARTS", 2)
    job = rank_folders.write(tmp_path / "job", 40)  # 20 batches: two levels of merges
    summarize(job, tmp_path / "one", workers=1)
    summarize(job, tmp_path / "two", workers=2)
    assert rank_folders.digests(tmp_path / "one") == rank_folders.digests(tmp_path / "two")
    assert stepscope.open(tmp_path / "one").meta.ranks == list(range(40))


def test_a_killed_process_costs_a_retry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "_BATCH_PARTS", 2)
    job = rank_folders.write(tmp_path / "job", 12)
    summarize(job, tmp_path / "usual", workers=2)
    killed: list[int] = []

    def kill_one(done: int, total: int) -> None:
        if 2 <= done < total and not killed:
            killed.append(until(workers_of_this_process, bool)[0])
            os.kill(killed[0], signal.SIGKILL)

    summarize(job, tmp_path / "disturbed", workers=2, on_progress=kill_one)
    assert killed
    assert rank_folders.digests(tmp_path / "usual") == rank_folders.digests(tmp_path / "disturbed")
    assert not workers_of_this_process()


def workers_of_this_process() -> list[int]:
    """The processes that a pool of this one started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == os.getpid() and b"stepscope.cluster.pool" in words:
            found.append(int(folder.name))
    return sorted(found)


def test_ranks_that_cannot_be_read_are_problems_and_the_others_are_there(tmp_path: Path) -> None:
    job = rank_folders.write(tmp_path / "job", 4)
    spans = job / "rank2" / "spans.parquet"
    spans.write_bytes(spans.read_bytes()[:-100])
    summary = summarize(job, tmp_path / "summary", workers=1)
    assert summary is not None
    assert summary.meta.ranks == [0, 1, 3]
    assert summary.problems.select("rank", "file", "lost").collect().rows() == [(2, str(spans), 1)]
    assert "rank 2 is not shown" in summary.problems.collect()["what"][0]


def test_a_rank_that_needs_too_much_memory_is_left_out_and_named(tmp_path: Path) -> None:
    job = rank_folders.write(tmp_path / "job", 3)
    large = rank_folders.trace(1, 3, 500_000)
    spans = pl.concat([large.spans.collect()] * 8_000).with_columns(span=pl.int_range(pl.len(), dtype=pl.Int64))
    repeated = spans.with_columns(args=pl.lit("x" * 1_200) + pl.col("span").cast(pl.String))  # 345 MB, in a small file
    store.write(large.with_tables(spans=repeated), job / "rank1", overwrite=True)
    summary = summarize(job, tmp_path / "summary", workers=1, memory_per_worker=400 << 20)
    assert summary is not None
    assert summary.meta.ranks == [0, 2]
    assert (
        "rank 1 is not shown: the process that read it ended, twice (more than 400 MiB of memory)" in summary.problems.collect()["what"][0]
    )


def test_without_any_readable_rank_there_is_an_error_and_no_folder(tmp_path: Path) -> None:
    job = rank_folders.write(tmp_path / "job", 2)
    for spans in job.glob("*/spans.parquet"):
        spans.write_bytes(b"x")
    with pytest.raises(DataError, match=r"spans\.parquet"):
        summarize(job, tmp_path / "summary", workers=1)
    assert [file.name for file in tmp_path.iterdir()] == ["job"]


def test_a_process_that_ends_again_and_again_costs_its_ranks_only(tmp_path: Path) -> None:
    job = rank_folders.write(tmp_path / "job", 2)
    batches = list(summaries.batches_of(summaries.plan_of(str(job)).parts, summaries.MEMORY))
    (tmp_path / "room").mkdir()
    with pool(1, 1, tmp_path / "room") as engine, pytest.raises(DataError, match="twice"):  # one byte of memory
        Tree(engine, batches, lambda done, total: None).run(lambda problems: Merge())
    assert engine.restarts == 2 + 2 * 2  # the batch twice, then each of its ranks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engine": "dask"}, "no engine 'dask'"),
        ({"workers": 0}, "workers is 0"),
        ({"memory_per_worker": 1 << 20}, "memory_per_worker is 1.00 MiB; expected at least 300 MiB"),
        ({"address": "auto"}, "address is for the engine ray"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_read(arguments: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        summarize(tmp_path / "missing", tmp_path / "summary", **arguments)  # type: ignore[arg-type]


def test_only_a_summary_is_replaced(tmp_path: Path) -> None:
    job = rank_folders.write(tmp_path / "job", 2)
    summarize(job, tmp_path / "summary", workers=1)
    with pytest.raises(UsageError, match="exists; choose another name"):
        summarize(job, tmp_path / "summary", workers=1)
    with pytest.raises(UsageError, match="is not a summary"):
        summarize(job, job / "rank0", workers=1, overwrite=True)
    assert summarize(job, tmp_path / "summary", workers=1, overwrite=True) is not None


def test_two_recordings_of_a_rank_are_refused(tmp_path: Path) -> None:
    rank_folders.write(tmp_path / "job" / "a", 2)
    rank_folders.write(tmp_path / "job" / "b", 2)
    with pytest.raises(DataError, match="two recordings of rank 0"):
        summarize(tmp_path / "job", tmp_path / "summary", workers=1)
