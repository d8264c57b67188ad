"""Real raw directories of CANN 2026 against what msprof itself exported from them on the machine."""

import csv
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import stepscope
from stepscope import readers
from stepscope.exporters.msprof import exporter as msprof
from stepscope.exporters.msprof_db import exporter as msprof_db
from stepscope.model.trace import Trace
from stepscope.readers import Options
from stepscope.readers.ascend.prof import reader as prof

REAL = Path(__file__).parents[3] / "shared" / "data" / "ascend" / "real_prof"
pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason="no ../shared/data/ascend/real_prof")
ALL = ["div_profiling", "matmul_ascendc_b1", "mul_ascendc_b1", "mul_pypto_b1"]
WITH_TEXT = ALL[1:]
KEYS = {
    "op_summary": ("Task Start Time(us)", "Stream ID", "Task ID"),
    "task_time": ("task_start(us)", "stream_id", "task_id"),
    "api_statistic": ("Level", "API Name"),
}
# The float in which msprof keeps the date has a grain of 0.25 us: moments differ by it, and so do differences of moments.
GRAINY = {"Task Start Time(us)", "task_start(us)", "task_stop(us)", "Task Wait Time(us)"}


def directory(case: str) -> Path:
    return next((REAL / case).glob("PROF*"))


def opened(case: str, tmp_path: Path) -> Trace:
    return prof.read(directory(case), Options(scratch=tmp_path))


def rows(folder: Path, table: str) -> list[dict[str, str]]:
    with next(folder.glob(f"{table}_*.csv")).open() as lines:
        found = [{key: value.strip() for key, value in row.items()} for row in csv.DictReader(lines)]
    return sorted(found, key=lambda row: [(number(row[key]) or 0, row[key]) for key in KEYS[table]])


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@pytest.mark.parametrize("table", KEYS)
@pytest.mark.parametrize("case", WITH_TEXT)
def test_every_cell_from_the_raw_bytes_is_that_of_msprof(case: str, table: str, tmp_path: Path) -> None:
    msprof.export(opened(case, tmp_path), tmp_path / "out")
    ours, theirs = rows(tmp_path / "out", table), rows(directory(case) / "mindstudio_profiler_output", table)
    assert len(ours) == len(theirs) and list(ours[0]) == list(theirs[0])
    wrong = []
    for mine, row in zip(ours, theirs, strict=True):
        for column, text in row.items():
            one, other = number(mine[column]), number(text)
            grain = 0.26 if column in GRAINY else 0.0021
            if mine[column] != text if one is None or other is None else abs(one - other) > grain:
                wrong.append(f"{column}: {mine[column]} instead of {text}")
    assert wrong == []


def test_kernels_on_streams_beyond_the_usual_number_are_there(tmp_path: Path) -> None:
    """`mul_pypto_b1`: each of 100 calls is two tasks on AI CPUs and a kernel on both kinds of core. One more has no operator."""
    trace = opened("mul_pypto_b1", tmp_path)
    kinds = trace.spans.filter(pl.col("category").is_in(["AI_CPU", "MIX_AIC", "KERNEL_AICPU"])).select("kind", "category").collect()
    assert Counter((str(kind), str(category)) for kind, category in kinds.iter_rows()) == {
        ("kernel", "AI_CPU"): 200,
        ("kernel", "MIX_AIC"): 100,
        ("other", "KERNEL_AICPU"): 1,
    }


def test_the_frequency_of_the_cores_is_that_of_msprof_without_what_was_before_the_recording(tmp_path: Path) -> None:
    trace = opened("mul_pypto_b1", tmp_path)
    mine = trace.counters.filter(pl.col("name").cast(pl.String).str.starts_with("aicore clock")).select("at_ns", "value").collect().rows()
    with closing(sqlite3.connect(directory("mul_pypto_b1") / "device_0" / "sqlite" / "freq.db")) as database:
        readings = database.execute("select syscnt, freq from FreqParse").fetchall()
    start, tick = readings[0][0], 1000 / 49.999001  # of the device's counter: hwts_frequency of its info.json
    assert [value / 1e6 for _, value in mine] == [freq for _, freq in readings] == [1650, 800, 1650]
    assert [at - mine[0][0] for at, _ in mine] == pytest.approx([(count - start) * tick for count, _ in readings], abs=2)
    volts = trace.counters.filter(pl.col("unit") == "V").group_by("name", maintain_order=True).agg("value").collect().rows()
    assert volts == [("aicore voltage npu 0", [0.775, 0.725, 0.775]), ("bus voltage npu 0", [0.93, 0.85, 0.93])]


@pytest.mark.parametrize("case", ALL)
def test_nothing_of_a_whole_directory_is_left_unread(case: str, tmp_path: Path) -> None:
    readings = opened(case, tmp_path).problems.select("what", "lost").collect().rows()
    assert readings == [("no iterations are marked: the whole recording is one step", 0)]


def test_the_level_of_current_cann_is_known(tmp_path: Path) -> None:
    assert [opened(case, tmp_path).meta.options["profLevel"] for case in ALL] == ["level1", "level0", "level0", "level0"]


def test_a_device_that_lost_its_sample_json_has_the_counters_that_the_host_names(tmp_path: Path) -> None:
    whole = directory("mul_ascendc_b1")
    copy = shutil.copytree(whole, tmp_path / whole.name, copy_function=shutil.copyfile)
    text = (copy / "device_0" / "sample.json").read_text()
    (copy / "device_0" / "sample.json").write_text(text[: len(text) // 2])
    trace = prof.read(copy, Options(scratch=tmp_path))
    one, other = (
        read.spans.filter(pl.col("kind") == "kernel").select("args").collect() for read in (trace, opened("mul_ascendc_b1", tmp_path))
    )
    assert one.equals(other) and "aiv_mte2_ratio" in one["args"][0]
    problems = trace.problems.filter(pl.col("file").str.starts_with("device_0")).select("what").collect().to_series().to_list()
    assert problems[0].startswith("not JSON") and problems[1] == "no readable sample.json: that of host is used instead"


def other_formats(case: str, tmp_path: Path) -> list[Trace]:
    """What msprof exported: its database, and its timeline with its tables where it wrote them."""
    root = directory(case)
    found = [readers.read(next(root.glob("msprof_*.db")), "ascend_db", Options(scratch=tmp_path))]
    text = root / "mindstudio_profiler_output"
    return [*found, readers.read(text, "msprof_output", Options(scratch=tmp_path))] if text.is_dir() else found


@pytest.mark.parametrize("case", ALL)
def test_a_recording_gives_the_same_answers_in_every_format(case: str, tmp_path: Path) -> None:
    raw = opened(case, tmp_path)
    for other in other_formats(case, tmp_path):
        for table in ("kind", "name", "category", "op_type", "step"):
            one, two = (Counter(trace.spans.select(pl.col(table).cast(pl.String)).collect().to_series()) for trace in (raw, other))
            assert one == two, table
        assert raw.steps.select("step", "start_ns", "end_ns", "how").collect().rows() == (
            other.steps.select("step", "start_ns", "end_ns", "how").collect().rows()
        )
        shares = [trace.overview()["busy_share"][0] for trace in (raw, other)]
        assert shares[0] == pytest.approx(shares[1], rel=1e-4)  # msprof's durations go through floats


def test_calls_have_the_names_and_totals_of_msprof_in_every_format(tmp_path: Path) -> None:
    table = {
        (row["Level"], row["API Name"]): int(row["Count"])
        for row in rows(directory("mul_pypto_b1") / "mindstudio_profiler_output", "api_statistic")
    }
    for trace in (opened("mul_pypto_b1", tmp_path), *other_formats("mul_pypto_b1", tmp_path)):
        lanes = trace.tracks.filter(pl.col("kind") == "thread").select("track")
        calls = trace.spans.join(lanes, on="track", how="semi").select(pl.col("category", "name").cast(pl.String)).collect()
        assert Counter(calls.rows()) == table


def columns(database: sqlite3.Connection) -> dict[str, list[str]]:
    tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
    return {name: [row[1] for row in database.execute(f'pragma table_info("{name}")')] for name in tables}


@pytest.mark.parametrize("case", ALL)
def test_our_database_has_the_tables_and_columns_of_msprofs_own_and_its_tasks(case: str, tmp_path: Path) -> None:
    msprof_db.export(opened(case, tmp_path), tmp_path / "ours.db")
    with (
        closing(sqlite3.connect(tmp_path / "ours.db")) as ours,
        closing(sqlite3.connect(next(directory(case).glob("msprof_*.db")))) as theirs,
    ):
        mine, known = columns(ours), columns(theirs)
        assert {name: mine.get(name) for name in known} == known
        task = (
            "select startNs, endNs, deviceId, s.value, contextId, streamId, taskId, modelId from TASK join STRING_IDS s on s.id = taskType"
            " order by startNs, streamId, taskId, contextId"
        )
        one, other = (database.execute(task).fetchall() for database in (ours, theirs))
        assert len(one) == len(other)
        assert [row[2:] for row in one] == [row[2:] for row in other]
        assert all(abs(a - b) <= 260 for row, of in zip(one, other, strict=True) for a, b in zip(row[:2], of[:2], strict=True))
        modules = "select id, name from ENUM_MODULE order by id"
        assert ours.execute(modules).fetchall() == theirs.execute(modules).fetchall()


def test_counters_in_our_database_have_msprofs_names_and_nanoseconds(tmp_path: Path) -> None:
    """Of `div_profiling` all blocks are known. msprof also writes zeros for pipes that vector cores do not have."""
    msprof_db.export(opened("div_profiling", tmp_path), tmp_path / "ours.db")
    totals = "select s.value, count(*), sum(p.value) from TASK_PMU_INFO p join STRING_IDS s on s.id = p.name group by 1"
    found = []
    for file in (tmp_path / "ours.db", next(directory("div_profiling").glob("msprof_*.db"))):
        with closing(sqlite3.connect(file)) as database:
            found.append({name: (count, total) for name, count, total in database.execute(totals)})
    ours, theirs = found
    assert set(theirs) - set(ours) == {"aiv_mac_ratio", "aiv_mac_time", "aiv_mte1_ratio", "aiv_mte1_time"}
    assert {name: count for name, (count, _) in ours.items()} == {name: theirs[name][0] for name in ours}
    assert {name: total for name, (_, total) in ours.items()} == pytest.approx({name: theirs[name][1] for name in ours}, rel=1e-6)
    assert theirs["aiv_total_time"][1] / 510 == pytest.approx(374_600, rel=0.01)  # of kernels that take 375 us


LOSSES = ("host/data/aging.compact.task_track.slice_0", "host/data/aging.api_event.data.slice_0", "device_0/data/stars_soc.data.0.slice_0")


@pytest.mark.parametrize("file", LOSSES)
def test_a_directory_that_lost_half_of_a_file_does_not_call_the_device_idle(file: str, shared: Path, tmp_path: Path) -> None:
    """300 kernels take 17.7 ms of 2.1 s. Half of the host's tasks, of its calls or of the device's log leave about 150 of them."""
    found = sorted((shared / "ascend" / "real_prof" / "mul_pypto_b1").glob("PROF_*"))
    if not found:
        pytest.skip("no real PROF directory")
    assert stepscope.open(found[0], cache=False).overview()["device_data"].to_list() == ["complete"]
    copy = Path(shutil.copytree(found[0], tmp_path / found[0].name, copy_function=shutil.copyfile))
    content = (copy / file).read_bytes()
    (copy / file).write_bytes(content[: len(content) // 2 // 256 * 256])
    trace = stepscope.open(copy, cache=False)
    assert trace.overview().select("device_data", "idle_share").row(0) == ("none", None)
    assert "some kernels are not recorded" in trace.verdict(topic="overview")["text"][0]


STARTS = ("host/start_info", "host/host_start.log", "device_0/start_info.0", "device_0/host_start.log.0", "device_0/dev_start.log.0")


@pytest.mark.parametrize("file", STARTS)
def test_without_one_of_its_start_times_the_device_stays_beside_the_host(file: str, shared: Path, tmp_path: Path) -> None:
    """Without host_start.log the kernels were 31 s before their launches, without start_info 56 years."""
    found = sorted((shared / "ascend" / "real_prof" / "mul_pypto_b1").glob("PROF_*"))
    if not found:
        pytest.skip("no real PROF directory")
    copy = Path(shutil.copytree(found[0], tmp_path / found[0].name, copy_function=shutil.copyfile))
    (copy / file).unlink()
    first = [
        spans.group_by("kind").agg(pl.col("start_ns").min()).collect().filter(pl.col("kind").is_in(["api", "kernel"])).sort("kind")
        for spans in (stepscope.open(path, cache=False).spans.with_columns(pl.col("kind").cast(pl.String)) for path in (found[0], copy))
    ]
    expected, shown = (rows["start_ns"].diff()[1] for rows in first)
    assert shown == pytest.approx(expected, abs=10_000)
