"""Result folders of torch_npu: what the analyses say is what torch_npu's own summaries say, from text and from the database alike."""

import contextlib
import csv
import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import stepscope
from stepscope.model import intervals
from stepscope.model.trace import Trace, analysis_names
from stepscope.readers.ascend.ascend_db import reader as ascend_db
from stepscope.readers.ascend.ascend_result import reader as ascend_result

DATA = Path(__file__).parents[3] / "shared" / "data" / "ascend" / "torch_npu"
FOLDERS = sorted(DATA.glob("*/level*/rank*_ascend_pt"))
pytestmark = pytest.mark.skipif(not FOLDERS, reason="torch_npu's results are not here")


@pytest.fixture(scope="module", params=FOLDERS, ids=lambda path: "/".join(path.parts[-3:]))
def result(request: pytest.FixtureRequest) -> tuple[Path, Trace]:
    path: Path = request.param
    return path, stepscope.open(path, cache=False)


def table(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def step_time(path: Path) -> dict[str, float]:
    """torch_npu's own summary of its one step, in microseconds."""
    output = path / "ASCEND_PROFILER_OUTPUT"
    if (output / "step_trace_time.csv").exists():
        row: dict[str, Any] = table(output / "step_trace_time.csv")[0]
        words = ("Computing", "Communication(Not Overlapped)", "Overlapped", "Communication", "Free", "Preparing")
    else:
        with contextlib.closing(sqlite3.connect(output / "analysis.db")) as database:
            database.row_factory = sqlite3.Row
            row = dict(database.execute("select * from StepTraceTime").fetchone())
        words = ("computing", "communication_not_overlapped", "overlapped", "communication", "free", "preparing")
    names = ("computing", "exposed", "overlapped", "communication", "free", "preparing")
    return {name: float(row[word]) for name, word in zip(names, words, strict=True)}


def test_the_step_is_divided_as_torch_npu_divides_it(result: tuple[Path, Trace]) -> None:
    """Text holds starts rounded to nanoseconds and durations that are not, so that ends differ by one here and there; 25 ns in all."""
    path, trace = result
    expected, tolerance = step_time(path), 25 if "/text/" in str(path) else 0
    row = trace.overlap().row(0, named=True)
    for name in ("computing", "exposed", "overlapped", "communication"):
        assert row[f"{name}_ns"] == pytest.approx(expected[name] * 1000, abs=tolerance + 0.5), name
    # torch_npu's step goes from the first kernel or collective to the last, and what only copies is free there.
    work = trace.spans.filter(pl.col("kind").is_in(["kernel", "communication"])).select(
        "start_ns", end=pl.col("start_ns") + pl.col("dur_ns")
    )
    busy = work.collect()
    covered = intervals.merge(busy["start_ns"].to_numpy(), busy["end"].to_numpy())
    free = int(covered.ends[-1] - covered.starts[0]) - covered.total
    assert free == pytest.approx(expected["free"] * 1000, abs=tolerance + 0.5)
    step = trace.steps.collect().row(0, named=True)
    before, after = int(covered.starts[0]) - step["start_ns"], step["end_ns"] - int(covered.ends[-1])
    assert row["free_ns"] + row["copy_ns"] == free + before + after
    assert before == pytest.approx(expected["preparing"] * 1000, abs=500)


@pytest.mark.parametrize("path", [path for path in FOLDERS if "/text/" in str(path)], ids=lambda path: "/".join(path.parts[-2:]))
def test_the_files_own_overlap_tracks_are_those_of_our_spans(path: Path) -> None:
    """Not overlapped and free time follow from computing and communication, to the nanosecond."""
    trace = stepscope.open(path, cache=False)
    assert trace.spans.filter(pl.col("name").cast(pl.String).is_in(["Computing", "Free"])).collect().is_empty()
    events = json.loads((path / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text())
    own: dict[str, list[tuple[int, int]]] = {}
    process = next(e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name" and e["args"]["name"] == "Overlap Analysis")
    for event in events:
        if event["ph"] == "X" and event["pid"] == process:
            start = int(event["ts"].replace(".", "").ljust(19, "0"))
            own.setdefault(event["name"], []).append((start, start + round(event["dur"] * 1000)))
    sets = {name: intervals.merge(*np.array(rows, np.int64).T) for name, rows in own.items()}
    exposed = intervals.subtract(sets["Communication"], sets["Computing"])
    assert exposed.total == sets["Communication(Not Overlapped)"].total == pytest.approx(step_time(path)["exposed"] * 1000, abs=0.5)
    both = intervals.join(sets["Computing"], sets["Communication"])
    assert int(both.ends[-1] - both.starts[0]) - both.total == sets["Free"].total == pytest.approx(step_time(path)["free"] * 1000, abs=0.5)
    for name, kind in (("Computing", "kernel"), ("Communication", "communication")):
        rows = trace.spans.filter(pl.col("kind") == kind).select("start_ns", end=pl.col("start_ns") + pl.col("dur_ns")).collect()
        ours = intervals.merge(rows["start_ns"].to_numpy(), rows["end"].to_numpy())
        either = intervals.join(ours, sets[name]).total - intervals.intersect(ours, sets[name]).total
        assert either <= len(rows), name  # a nanosecond for each, at most


@pytest.mark.parametrize("path", [path for path in FOLDERS if "/text/" in str(path)], ids=lambda path: "/".join(path.parts[-2:]))
def test_samples_that_stand_in_the_timeline_and_in_a_table_are_taken_once(path: Path) -> None:
    events = json.loads((path / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text())
    drawn = [event["args"]["KB"] * 1024 for event in events if event["ph"] == "C" and event["name"] == "APP/Memory"]
    rows = [row for row in table(path / "ASCEND_PROFILER_OUTPUT" / "memory_record.csv") if row["Component"] == "APP"]
    assert len(rows) == len(drawn) > 0
    counters = stepscope.open(path, cache=False).counters.with_columns(pl.col("name").cast(pl.String)).sort("at_ns").collect()
    assert counters.filter(pl.col("name").str.starts_with("process memory"))["value"].to_list() == drawn


@pytest.mark.parametrize("rank", [0, 1])
def test_operator_types_are_those_of_op_statistic(rank: int) -> None:
    path = DATA / "text" / "level1" / f"rank{rank}_ascend_pt"
    types = stepscope.open(path, cache=False).operator_types().filter(pl.col("device") == "aicore")
    found = {row["type"]: row for row in types.iter_rows(named=True)}
    rows = table(path / "ASCEND_PROFILER_OUTPUT" / "op_statistic.csv")
    merged: dict[str, tuple[int, float]] = {}
    for row in rows:
        calls, total = merged.get(row["OP Type"], (0, 0.0))
        merged[row["OP Type"]] = calls + int(row["Count"]), total + float(row["Total Time(us)"])
    for name, (calls, total) in merged.items():
        assert found[name]["calls"] == calls, name
        assert found[name]["total_ns"] == pytest.approx(total * 1000, abs=calls + 1), name


def shape_of(trace: Trace) -> dict[str, Any]:
    """What two recordings of the same training share, whatever wrote them: everything but times and numbers of runs."""
    kinds = (
        trace.spans.filter(pl.col("kind").is_in(["step", "op", "kernel", "communication", "copy", "scope", "data"])).group_by("kind").len()
    )
    kernels = trace.operators(device="aicore").filter(pl.col("type") != "MEMCPY_ASYNC", ~pl.col("type").str.starts_with("acl_memcpy"))
    keys = ["type", "scope", "calls", "shapes", "dtypes"]
    plain = [re.sub(r"__\d+_", "_", str(name)) for name in trace.communication()["name"]]
    links = trace.links().select("src", "dst", "transport", "transfers", "bytes")
    return {
        "kinds": dict(kinds.collect().with_columns(pl.col("kind").cast(pl.String)).iter_rows()),
        "types": sorted(trace.operator_types().filter(pl.col("device") == "aicore", ~pl.col("type").str.contains("(?i)memcpy"))
                        .select("type", "calls").iter_rows()),
        "kernels": sorted(map(str, kernels.select(keys).iter_rows())),
        "host": sorted(map(str, trace.operators(device="cpu").select(*keys, "flops").iter_rows())),
        "collectives": sorted(zip(plain, trace.communication()["bytes"], strict=True)),
        "links": sorted(links.iter_rows()),
        "steps": trace.step_trace().select("step", "fp_start_op", "bp_end_op", "found", "clock").rows(),
        "memory": sorted(trace.memory()["device"].unique()),
        "blocks": sorted(map(str, trace.allocations.select("device", "bytes", "op").collect().iter_rows())),
        "tracks": sorted(trace.tracks.select("label").filter(~pl.col("label").str.starts_with("Thread")).collect()["label"]),
        "module times": trace.modules().select("scope").height if "scope" in trace.modules().columns else None,
    }  # fmt: skip


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("level", ["level0", "level1"])
def test_text_and_database_give_the_same_analyses(level: str, rank: int) -> None:
    """Two recordings of one training with the same options: all that is not time agrees."""
    text, database = (shape_of(stepscope.open(DATA / kind / level / f"rank{rank}_ascend_pt", cache=False)) for kind in ("text", "db"))
    for name in text:
        assert text[name] == database[name], name


def counted(trace: Trace, *, without: frozenset[str] = frozenset()) -> dict[tuple[str, str], int]:
    """How often each thing happened, but for what differs from run to run: Python's stack, polls, the number of a collective."""
    rows = trace.totals().filter(pl.col("kind") != "python", ~pl.col("name").str.ends_with("aclrtQueryEventStatus"))
    rows = rows.filter(~pl.col("category").cast(pl.String).is_in(without).fill_null(False))
    plain = rows.with_columns(pl.col("name").str.replace(r"__\d+_", "_")).group_by("kind", "name").agg(pl.col("calls").sum())
    return {(kind, name): calls for kind, name, calls in plain.iter_rows()}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("level", ["level0", "level1"])
def test_everything_happens_as_often_in_text_and_in_the_database(level: str, rank: int) -> None:
    one, other = (stepscope.open(DATA / kind / level / f"rank{rank}_ascend_pt", cache=False) for kind in ("text", "db"))
    # What only the database has: a frame around the parts of a collective's task, at each level, and at level 0 CANN's calls.
    of_cann = frozenset({"acl", "node", "communication", "runtime"} if level == "level0" else ())
    assert counted(one) == counted(one, without=of_cann) and (counted(other) != counted(other, without=of_cann)) == bool(of_cann)
    text, database = counted(one), counted(other, without=of_cann)
    assert database.pop(("other", "AI_CORE")) == 4
    assert text == database
    assert text["sync", "Notify Wait"] == 112


_OF_STACKS = {"callers", "hot_functions", "hot_paths", "flame_graph", "flame_functions", "flame_chart", "advice", "waterfall"}


@pytest.mark.parametrize("rank", [0, 1])
def test_every_analysis_of_text_and_database_has_the_same_rows_and_says_the_same_things(rank: int) -> None:
    """But for those of what happened to be on Python's stack, in memory at the peak, and on the critical path in each of the two."""
    text, database = (stepscope.open(DATA / kind / "level1" / f"rank{rank}_ascend_pt", cache=False) for kind in ("text", "db"))
    for name in set(analysis_names()) - {*_OF_STACKS, "operators", "totals", "live_tensors", "critical_path"}:
        one, other = text.analyse(name), database.analyse(name)
        assert one.height == other.height, name
        silent = [{column for column in rows.columns if rows[column].null_count() == rows.height} for rows in (one, other)]
        assert silent[0] == silent[1], name


def test_what_the_host_waits_for_as_it_reads_a_value_is_on_the_critical_path(result: tuple[Path, Trace]) -> None:
    """The loss is read while gradients are still being summed up: nothing hides that, so all of it makes the step longer."""
    path, trace = result
    taken = dict(trace.critical_path().group_by("kind").agg(pl.col("dur_ns").sum()).iter_rows())
    assert taken["communication"] >= 0.99 * step_time(path)["exposed"] * 1000


@pytest.mark.parametrize("kind", ["text", "db"])
@pytest.mark.parametrize("ranks", ["rank0_ascend_pt", "rank1_ascend_pt", "."])
def test_transit_wait_and_idle_time_are_those_that_torch_npu_says(kind: str, ranks: str) -> None:
    trace = stepscope.open(DATA / kind / "level1" / ranks, cache=False)
    found = trace.communication()
    parts = ("total_ns", "transit_ns", "wait_ns", "idle_ns")
    for rank in trace.meta.ranks:
        output = DATA / kind / "level1" / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        if kind == "text":
            printed = json.loads((output / "communication.json").read_text())["step50"]["collective"]
            printed.pop("Total Op Info")
            words = [f"{word} Time(ms)" for word in ("Elapse", "Transit", "Wait", "Idle")]
            wanted = {name.partition("@")[0]: [one["Communication Time Info"][word] for word in words] for name, one in printed.items()}
        else:
            with contextlib.closing(sqlite3.connect(output / "analysis.db")) as tables:
                rows = tables.execute(
                    "select hccl_op_name, elapse_time, transit_time, wait_time, idle_time from CommAnalyzerTime"
                ).fetchall()
            wanted = {name: times for name, *times in rows}
        own = found.filter(rank=rank)
        assert {name: list(row) for name, *row in own.select("name", *parts).iter_rows()} == {
            name: [pytest.approx(ms * 1e6, abs=1) for ms in times] for name, times in wanted.items()
        }
        # The same call by call as added up for the rank and step.
        (of_step,) = trace.cluster_steps(rank=rank).select("transit_ns", "wait_ns", "communication_idle_ns", "known_waits").rows()
        assert of_step == (*own.select(pl.col(parts[1:]).sum()).row(0), 4)
    assert set(found["note"]) == {"wait as the recording says"}
    assert set(found["matched"]) == {1 if ranks == "." else 0}  # without the other rank


def test_a_parent_of_result_folders_is_one_run_whose_ranks_share_a_clock() -> None:
    for kind in ("text", "db"):
        trace = stepscope.open(DATA / kind / "level1", cache=False)
        assert trace.meta.ranks == [0, 1]
        assert set(trace.communication()["matched"]) == {1}


def test_each_database_opens_by_itself_and_only_its_reader_claims_it() -> None:
    path = DATA / "db" / "level1" / "rank1_ascend_pt"
    file = next(path.glob("*/ascend_pytorch_profiler_1.db"))
    assert ascend_db.sniff(file) and not ascend_result.sniff(file) and not ascend_db.sniff(path)
    alone, folder = stepscope.open(file, cache=False), stepscope.open(path, cache=False)
    assert alone.meta.ranks == [1]
    assert alone.overlap().equals(folder.overlap())


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("level", ["level0", "level1"])
def test_idle_time_and_copies_are_free_and_preparing_and_what_follows_the_last_kernel(level: str, rank: int) -> None:
    """As docs/msprof.md says; torch_npu's microseconds pass through floats of the date, which have a grain of 0.25."""
    folder = DATA / "text" / level / f"rank{rank}_ascend_pt"
    trace = stepscope.open(folder, cache=False)
    with next(folder.glob("ASCEND_PROFILER_OUTPUT/step_trace_time.csv")).open() as lines:
        (expected_row,) = csv.DictReader(lines)
    ours, step = trace.overlap().row(0, named=True), trace.steps.collect().row(0, named=True)
    work = trace.spans.filter(pl.col("kind").is_in(["kernel", "communication"]), pl.col("step") == step["step"])
    last = work.select((pl.col("start_ns") + pl.col("dur_ns")).max()).collect().item()
    mine = ours["free_ns"] + ours["copy_ns"] - (step["end_ns"] - last)
    assert mine / 1000 == pytest.approx(float(expected_row["Free"]) + float(expected_row["Preparing"]), abs=0.5)


def test_without_a_timeline_steps_are_those_of_the_table_of_kernels(tmp_path: Path) -> None:
    """Three kernels of step 7, one of step 9 and one of none, from 10 us on; the last of step 7 ends after step 9 has begun."""
    rows = [(7, "a", 10, 5), (7, "b", 20, 5), (9, "a", 40, 20), (7, "c", 35, 8), ("N/A", "d", 80, 5)]
    text = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us)\n"
    folder = tmp_path / "x_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True)
    (folder / "kernel_details.csv").write_text(
        text + "".join(f"{step},{name},MatMul,AI_CORE,{start}.000\t,{length}\n" for step, name, start, length in rows)
    )
    trace = stepscope.open(tmp_path / "x_ascend_pt", cache=False)
    assert trace.steps.select("step", "start_ns", "end_ns", "how").collect().rows() == [
        (7, 10_000, 40_000, "device"),
        (9, 40_000, 60_000, "device"),
    ]
    of = trace.spans.filter(pl.col("kind") == "kernel").select(pl.col("name").cast(pl.String), "start_ns", "step").sort("start_ns")
    assert of.collect().rows() == [("a", 10_000, 7), ("b", 20_000, 7), ("c", 35_000, 7), ("a", 40_000, 9), ("d", 80_000, None)]
    assert trace.kernels()["calls"].sum() == 5 and trace.overview()["steps"].to_list() == [2]


@pytest.mark.parametrize("level", ["level0", "level1"])
def test_the_step_of_a_real_table_of_kernels_is_the_one_of_the_timeline(level: str, tmp_path: Path) -> None:
    folder = DATA / "text" / level / "rank0_ascend_pt"
    shutil.copytree(folder, tmp_path / "x_ascend_pt")
    (tmp_path / "x_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").unlink()
    alone, whole = stepscope.open(tmp_path / "x_ascend_pt", cache=False), stepscope.open(folder, cache=False)
    assert alone.steps.select("step", "how").collect().rows() == whole.steps.select("step", "how").collect().rows() == [(50, "marker")]
    for kind in ("kernel", "communication"):
        found, wanted = (
            trace.spans.filter(pl.col("kind") == kind).select("start_ns", "step").sort("start_ns").collect() for trace in (alone, whole)
        )
        assert set(found["step"]) == {50} and found["step"].equals(wanted["step"])
        assert (found["start_ns"] - wanted["start_ns"]).abs().max() <= 2  # both round the same moment
