"""The laws that hold for every sample of every format: one reader claims it, nothing changes in the store, every analysis answers."""

import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import stepscope
from key_averages import nothing_but_itself
from stepscope import readers
from stepscope.cli.setup.demo import RECORDING
from stepscope.exporters import chrome
from stepscope.io import store
from stepscope.model import schema
from stepscope.model.trace import Trace, analysis_names
from stepscope.readers.chrome.kineto.memory import ALLOCATORS
from volume import mostly_deep

FOLDER = Path(__file__).parent / "samples"
SAMPLES = [RECORDING, *sorted(FOLDER.glob("*/*/*"))]  # a file or, for some formats, a folder


def format_of(sample: Path) -> str:
    return "run" if sample == RECORDING else sample.relative_to(FOLDER).parts[0]


def test_there_are_samples_of_every_format_and_of_run_folders() -> None:
    assert {format_of(path) for path in SAMPLES} == {*readers.names(), "run"}


def sample_name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@pytest.fixture(scope="module", params=SAMPLES, ids=sample_name)
def sample(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture(scope="module")
def trace(sample: Path) -> Trace:
    return stepscope.open(sample, cache=False)


def test_exactly_its_own_reader_claims_it_under_any_name(sample: Path, tmp_path: Path) -> None:
    (shutil.copytree if sample.is_dir() else shutil.copy)(sample, tmp_path / "another name")
    for path in (sample, tmp_path / "another name"):
        claims = {name: readers.module(name).sniff(path) for name in readers.names()} | {"run": store.sniff(path)}
        assert [name for name, claimed in claims.items() if claimed] == [format_of(sample)]


def test_the_tables_are_as_the_schema_says(trace: Trace) -> None:
    for name, columns in schema.TABLES.items():
        assert dict(trace.table(name).collect_schema()) == {key: pl.Series(dtype=dtype).dtype for key, dtype in columns.items()}, name
    spans = trace.spans.collect()
    assert spans.height > 0
    for column in ("span", "rank", "track", "kind", "name", "start_ns", "dur_ns", "self_ns", "depth"):
        assert spans[column].null_count() == 0, column
    assert spans.select("rank", "span").is_unique().all()
    assert (spans["dur_ns"] >= 0).all() and (spans["self_ns"] >= 0).all() and (spans["self_ns"] <= spans["dur_ns"]).all()
    known = spans.select("rank", parent="span")
    for column in ("parent", "op", "flow_in"):
        refers = spans.filter(pl.col(column).is_not_null()).select("rank", parent=column)
        assert refers.join(known, on=["rank", "parent"], how="anti").height == 0, column
    assert spans.join(trace.tracks.collect(), on=["rank", "track"], how="anti").height == 0
    assert (trace.steps.collect()["end_ns"] >= trace.steps.collect()["start_ns"]).all()


def test_self_times_add_up_to_the_outermost_spans(trace: Trace) -> None:
    """And to what sticks out of the span around it: a range may be opened in a Python frame and outlive it."""
    end = pl.col("start_ns") + pl.col("dur_ns")
    spans = trace.spans.select("rank", "track", "span", "parent", "dur_ns", "self_ns", end=end).collect()
    around = spans.select("rank", parent="span", around_end="end")
    outside = pl.when(pl.col("parent").is_null()).then("dur_ns").otherwise((pl.col("end") - pl.col("around_end")).clip(0))
    sums = (
        spans.join(around, on=["rank", "parent"], how="left")
        .group_by("rank", "track")
        .agg(outside.sum().alias("covered"), pl.col("self_ns").sum())
    )
    assert sums.filter(pl.col("covered") != pl.col("self_ns")).height == 0


def test_a_run_folder_gives_back_what_went_in(trace: Trace, tmp_path: Path) -> None:
    store.write(trace, tmp_path / "run")
    back = store.read(tmp_path / "run")
    assert back.meta == trace.meta
    for name in schema.TABLES:
        assert_frame_equal(back.table(name).collect(), trace.table(name).collect(), categorical_as_str=True)


@pytest.mark.parametrize("name", analysis_names())
def test_every_analysis_answers_with_its_columns(trace: Trace, name: str) -> None:
    answer = trace.analyse(name)
    columns = stepscope.model.trace.analysis(name).columns
    assert dict(answer.schema) == {key: pl.Series(dtype=dtype).dtype for key, dtype in columns.items()}


@pytest.mark.parametrize("name", analysis_names())
def test_every_analysis_answers_an_empty_trace(name: str) -> None:
    assert list(Trace({}).analyse(name).columns) == list(stepscope.model.trace.analysis(name).columns)


def test_the_stages_of_a_step_add_up_to_the_step(trace: Trace) -> None:
    steps = trace.analyse("step_trace")
    assert (steps["interval_ns"] + steps["fp_bp_ns"] + steps["tail_ns"] == steps["total_ns"]).all()
    stages = trace.analyse("step_stages").group_by("rank", "step").agg(pl.col("dur_ns").sum())
    assert_frame_equal(
        stages.sort("rank", "step").rename({"dur_ns": "total_ns"}), steps.select("rank", "step", "total_ns").sort("rank", "step")
    )
    parts = trace.overlap()
    assert (parts["computing_ns"] + parts["exposed_ns"] + parts["copy_ns"] + parts["free_ns"] == parts["total_ns"]).all()


def test_overlap_equals_counting_every_nanosecond(trace: Trace) -> None:
    """Naively: mark each nanosecond of the first step, in slices of a microsecond's width at most."""
    step = trace.steps.sort("start_ns").head(1).collect()
    if step.height == 0:
        pytest.skip("no steps")
    low, high = step["start_ns"][0], min(step["end_ns"][0], step["start_ns"][0] + 3_000_000)
    marked = {kind: bytearray(high - low) for kind in ("kernel", "communication")}
    work = trace.spans.filter(pl.col("rank") == step["rank"][0]).select(pl.col("kind").cast(pl.String), "start_ns", "dur_ns").collect()
    compute = "kernel" if (work["kind"] == "kernel").any() else "op"
    for kind, start, length in work.iter_rows():
        name = "kernel" if kind == compute else kind
        if name in marked and start < high and start + length > low:
            first, last = max(start, low) - low, min(start + length, high) - low
            marked[name][first:last] = b"\1" * (last - first)
    from stepscope.analyses.shared.steps.step_windows import device_times
    from stepscope.model import intervals

    _, _, busy = next(iter(device_times(trace.of_rank(step["rank"][0]))), (0, None, None))
    if busy is None:
        pytest.skip("nothing in it is known to be work")
    sets = {kind: intervals.clip(busy.get(kind, intervals.NONE), low, high) for kind in marked}
    assert {kind: found.total for kind, found in sets.items()} == {kind: sum(marks) for kind, marks in marked.items()}
    both = intervals.intersect(sets["kernel"], sets["communication"]).total
    assert both == sum(a & b for a, b in zip(marked["kernel"], marked["communication"], strict=True))


FIRST_OF_FORMAT = list({format_of(path): path for path in reversed(SAMPLES)}.values())


@pytest.mark.parametrize("sample", mostly_deep(SAMPLES, FIRST_OF_FORMAT), ids=sample_name, indirect=True)
def test_chrome_json_read_back_gives_the_same_answers(trace: Trace, tmp_path: Path) -> None:
    if trace.spans.filter(pl.col("kind") != "instant").head(1).collect().is_empty():
        pytest.skip("nothing in it has a duration")
    out = tmp_path / ("trace.json.gz" if len(trace.meta.ranks) < 2 else "a file for each rank")
    chrome.export(trace, out)
    back = stepscope.open(out, cache=False)
    assert back.meta.framework == trace.meta.framework
    ops = trace.allocations.select(pl.col("op").cast(pl.String)).unique().collect()["op"]
    # Earlier recordings credit blocks to the operator that allocates, and not to the one that wants them.
    older = {"allocations_by_op", "live_tensors", "memory", "memory_peaks"} if ops.str.contains(ALLOCATORS).any() else set()
    # A Chrome file does not have the operations of pipeline stages.
    in_stages = {"cluster_cells", "cluster_ranks", "cluster_stages", "parallel_groups", "parallel_map", "pipeline_chart"}
    staged = (
        {"stragglers", "job_loss", "verdict", "advice", *in_stages} if trace.table("stage_operations").head(1).collect().height else set()
    )
    for name in [name for name in analysis_names() if name not in older | staged]:
        theirs, ours = (one.analyse(name).drop("track", strict=False) for one in (back, trace))  # tracks are numbered anew
        # A Chrome file does not say that copies are unknown.
        copies = [column for column in ("copy_share", "copy_ns") if column in ours.columns and ours[column].null_count()]
        theirs, ours = theirs.drop(copies), ours.drop(copies)
        if name == "verdict":  # what was lost in reading the first file is not lost in reading the second one
            topics = ["problems", *(["memory"] if older else [])]
            theirs, ours = (table.filter(~pl.col("topic").is_in(topics)) for table in (theirs, ours))
        if name == "advice":  # a Chrome file has no details of tasks, so that fewer rules can be checked
            theirs, ours = (table.filter(pl.col("status").is_in(["finding", "statement"])) for table in (theirs, ours))
        assert_frame_equal(theirs, ours, check_row_order=False, categorical_as_str=True)


# Recorded by stepscope on an H200, with what torch.profiler itself counted in the same steps beside them.


@pytest.fixture(scope="module", params=sorted((FOLDER / "summaries").glob("*.json")), ids=lambda path: path.stem)
def summarised(request: pytest.FixtureRequest) -> tuple[Trace, pl.DataFrame]:
    sample = next(path for path in SAMPLES if path.name == request.param.stem)
    return stepscope.open(sample, cache=False), pl.DataFrame(json.loads(request.param.read_text()), infer_schema_length=None)


def test_kernels_are_exactly_those_of_torchs_own_summary(summarised: tuple[Trace, pl.DataFrame]) -> None:
    trace, expected_rows = summarised
    on_device = expected_rows.filter(pl.col("device") == "CUDA", ~pl.col("annotation"))
    theirs = {row["name"]: (row["calls"], round(row["device_us"] * 1000)) for row in on_device.iter_rows(named=True)}
    work = trace.spans.filter(pl.col("kind").cast(pl.String).is_in(["kernel", "copy", "set"])).group_by(pl.col("name").cast(pl.String))
    ours = {name: (calls, total) for name, calls, total in work.agg(pl.len(), pl.col("dur_ns").sum()).collect().iter_rows()}
    assert ours == theirs
    kernels = {name: row for name, row in theirs.items() if not name.startswith(("Memcpy", "Memset"))}
    assert trace.kernels()["calls"].sum() == sum(calls for calls, _ in kernels.values()) > 1000
    assert trace.kernels()["total_ns"].sum() == sum(total for _, total in kernels.values())


def test_host_operators_and_flops_are_exactly_those_of_torchs_own_summary(summarised: tuple[Trace, pl.DataFrame]) -> None:
    trace, expected_rows = summarised
    on_host = expected_rows.filter(pl.col("device") == "CPU", pl.col("name").str.starts_with("aten::"))
    theirs = {row["name"]: (row["calls"], round(row["total_us"] * 1000), row["flops"]) for row in on_host.iter_rows(named=True)}
    ops = trace.spans.filter(pl.col("name").cast(pl.String).str.starts_with("aten::")).group_by(pl.col("name").cast(pl.String))
    sums = ops.agg(calls=pl.len(), total_ns=pl.col("dur_ns").sum(), flops=pl.col("flops").sum()).collect()
    twice = nothing_but_itself(trace)
    assert {
        name: (calls - len(twice.get(name, [])), total - sum(twice.get(name, [])), flops) for name, calls, total, flops in sums.iter_rows()
    } == theirs
    assert len(theirs) > 50


def test_the_stages_of_a_recorded_training_are_those_of_its_loop(summarised: tuple[Trace, pl.DataFrame]) -> None:
    """On the host, whose thread of training goes through them one after the other; more than nine tenths of a step is work."""
    trace, _ = summarised
    stages = trace.step_stages()
    assert trace.steps.collect()["step"].to_list() == [8, 9, 10, 11]
    for _, step in stages.group_by("step"):
        share = dict(step.select("stage", "share").iter_rows())
        assert list(share) == ["data wait", "input copy", "forward", "backward", "optimizer", "other"]
        assert share["data wait"] < share["optimizer"] < share["forward"] < share["backward"]
        assert share["forward"] + share["backward"] > 0.9
    assert set(trace.data_queues()["verdict"]) == {"full"}
    memory = trace.memory().filter(pl.col("device") == "gpu 0")
    assert (memory["static_bytes"] <= memory["allocated_bytes"]).all()
    assert (memory["allocated_bytes"] <= memory["reserved_bytes"]).all()


def test_the_demo_comes_from_nobodys_machine() -> None:
    """No path, host or user of the machine that recorded it, in any table or in run.json."""
    trace = stepscope.open(RECORDING, cache=False)
    texts = [(RECORDING / "run.json").read_text()]
    for name, columns in schema.TABLES.items():
        words = [column for column, dtype in columns.items() if dtype in (pl.String, pl.Categorical)]
        texts += [str(word) for word in trace.table(name).select(pl.col(words).cast(pl.String)).collect().rows() for word in word]
    found = {text for text in texts if re.search(r"(^|[\s\"'(])(/(home|root|tmp|usr|opt|work|mnt)/|[A-Z]:\\\\)", text)}
    assert not found
