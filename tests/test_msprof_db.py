"""msprof_*.db: the tables of Ascend's databases, and the same answers from the database as from the raw data it was made of."""

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from conftest import SHARED
from prof_directories import REAL_US, small_network
from stepscope.errors import StepscopeError, UsageError
from stepscope.exporters.msprof_db import exporter as msprof_db
from stepscope.model.trace import Trace, analysis_names, combine
from stepscope.readers import Options
from stepscope.readers.ascend.ascend_db import reader as ascend_db
from stepscope.readers.ascend.prof import reader as prof

CASES = sorted(SHARED.glob("ascend/synth/*")) if SHARED.is_dir() else []
START_NS = REAL_US * 1000


def rows_of(file: Path, question: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as database:
        return database.execute(question).fetchall()


def there_and_back(raw: Path, room: Path) -> tuple[Trace, Trace]:
    trace = prof.read(raw, Options(scratch=room))
    msprof_db.export(trace, room / "msprof_1.db")
    return trace, ascend_db.read(room / "msprof_1.db", Options(scratch=room))


def answer(trace: Trace, name: str) -> pl.DataFrame | str:
    """Without what numbers rows, which are in another order, and without the level that one of the readers puts before a call's name."""
    try:
        rows = trace.analyse(name)
    except StepscopeError as error:
        return str(error).replace(trace.meta.source, "")
    rows = rows.drop("span", "track", "next_span", "node", "parent", strict=False)
    rows = rows.with_columns(pl.col(pl.String).str.replace_all(r"\b(AscendCL|Node|Model|Communication|Runtime)@", ""))
    rows = rows.with_columns(pl.col(pl.Float64).round(9))
    return rows.sort([column for column, dtype in rows.schema.items() if not dtype.is_nested()]) if rows.width else rows


@pytest.fixture
def small(tmp_path: Path) -> Path:
    raw = small_network().write(tmp_path / "PROF_000001_20231114221320000_ABCDEFGH")
    (tmp_path / "room").mkdir()
    there_and_back(raw, tmp_path / "room")
    return tmp_path / "room" / "msprof_1.db"


def test_tasks_have_their_times_in_nanoseconds_and_their_operators(small: Path) -> None:
    found = rows_of(
        small,
        "select t.startNs, t.endNs, t.deviceId, t.streamId, t.taskId, k.value, n.value, o.value, s.value, c.blockNum from TASK t "
        "join COMPUTE_TASK_INFO c using (globalTaskId) join STRING_IDS n on n.id = c.name join STRING_IDS o on o.id = c.opType "
        "join STRING_IDS s on s.id = c.inputShapes join STRING_IDS k on k.id = t.taskType order by t.startNs limit 2",
    )
    # The first step's operators run 150 us after the start: 40 us of MatMul, and 2 us later 10 us of ReLU.
    assert found == [
        (START_NS + 150_000, START_NS + 190_000, 0, 3, 0, "KERNEL_AICORE", "net/layer0/MatMul-op1", "MatMul", "16,32;16,32", 24),
        (START_NS + 192_000, START_NS + 202_000, 0, 3, 1, "KERNEL_AIVEC", "net/layer0/ReLU-op2", "ReLU", "16,32;16,32", 24),
    ]


def test_collectives_lead_to_their_tasks_and_calls_to_what_they_launched(small: Path) -> None:
    found = rows_of(
        small,
        "select o.startNs, o.endNs, w.value, i.size, i.srcRank, i.dstRank, l.name, t.endNs - t.startNs from COMMUNICATION_OP o "
        "join COMMUNICATION_TASK_INFO i using (opId) join TASK t using (globalTaskId) join STRING_IDS w on w.id = i.taskType "
        "join ENUM_HCCL_LINK_TYPE l on l.id = i.linkType order by t.startNs limit 2",
    )
    begin = START_NS + 240_000
    assert found == [
        (begin, begin + 90_000, "Notify_Wait", 0, 0, 1, "HCCS", 10_000),
        (begin, begin + 90_000, "Memcpy", 1 << 20, 0, 1, "HCCS", 70_000),
    ]
    calls = (
        "select distinct s.value, a.type, a.globalTid from TASK t join CANN_API a using (connectionId) join STRING_IDS s on s.id = a.name"
    )
    assert ("KernelLaunch", 5000, 42 << 32 | 100) in rows_of(small, calls)


def test_computing_communicating_and_nothing_are_as_the_tasks_say(small: Path) -> None:
    found = rows_of(small, "select type, startNs, endNs from OVERLAP_ANALYSIS where startNs < (select min(startNs) + 300000 from TASK)")
    first = [(kind, start - START_NS - 150_000, end - START_NS - 150_000) for kind, start, end in found if isinstance(start, int)]
    computing, communication = [(0, 40), (42, 52), (55, 75), (80, 140)], [(90, 180)]
    free = [(40, 42), (52, 55), (75, 80), (180, 300)]
    expected = [(0, computing), (1, communication), (2, [(140, 180)]), (3, free)]
    assert first == [(kind, start * 1000, end * 1000) for kind, parts in expected for start, end in parts]


def test_every_answer_is_the_same_from_the_database(tmp_path: Path) -> None:
    raw = small_network().write(tmp_path / "PROF_000001_20231114221320000_ABCDEFGH")
    (tmp_path / "room").mkdir()
    before, after = there_and_back(raw, tmp_path / "room")
    names = [name for name in analysis_names() if name != "verdict"]
    names.remove("advice")  # a database has no details of tasks, so that fewer rules can be checked
    names = [name for name in names if name not in ("ranks", "cluster_stages")]  # raw data have no world size
    assert [name for name in names if not same(answer(before, name), answer(after, name))] == []
    # The number of ranks, part of the coverage and of the topic `cluster`, is read from the links of a database, not from raw data.
    ours, theirs = (trace.verdict().filter(pl.col("topic") != "cluster").drop("coverage") for trace in (before, after))
    assert theirs.equals(ours)
    assert after.problems.collect().select("what", "lost").equals(before.problems.collect().select("what", "lost"))
    assert (after.meta.versions, after.meta.extra) == (before.meta.versions, before.meta.extra)


def same(one: pl.DataFrame | str, other: pl.DataFrame | str) -> bool:
    return bool(one == other) if isinstance(one, str) or isinstance(other, str) else one.equals(other)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_answer_of_every_case_is_the_same_from_the_database(case: Path, tmp_path: Path) -> None:
    before, after = there_and_back(next(case.glob("PROF_*")), tmp_path)
    names = (
        "overview",
        "step_trace",
        "operators",
        "kernels",
        "overlap",
        "communication",
        "links",
        "launches",
        "totals",
        "roofline",
        "gaps",
    )
    assert [name for name in names if not same(answer(before, name), answer(after, name))] == []


def test_tables_have_the_columns_of_a_database_that_ascend_wrote(small: Path, shared: Path) -> None:
    real = next(shared.glob("ascend/torch_npu/db/level1/rank0*/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db"))
    # What MindStudio Insight added when it opened the file, and what newer versions call otherwise.
    added = {"depth", "waitNs", "blockDim", "mixBlockDim"}
    for (table,) in rows_of(small, "select name from sqlite_master where type = 'table' and name not like 'STEPSCOPE%'"):
        columns = [{str(row[1]) for row in rows_of(file, f"pragma table_info('{table}')")} for file in (real, small)]
        assert columns[0] - added <= columns[1], table


def test_a_database_without_a_framework_opens(small: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(small)) as database:
        for (table,) in database.execute("select name from sqlite_master where type = 'table' and name like 'STEPSCOPE%'").fetchall():
            database.execute(f"drop table {table}")
        database.commit()
    trace = ascend_db.read(small, Options(scratch=tmp_path))
    assert trace.spans.filter(pl.col("kind") == "kernel").select(pl.len()).collect().item() == 12


def test_several_ranks_do_not_go_into_one_file(tmp_path: Path) -> None:
    raw = small_network().write(tmp_path / "PROF_000001_20231114221320000_ABCDEFGH")
    ranks = [prof.read(raw, Options(scratch=tmp_path, rank=rank)) for rank in (0, 1)]
    with pytest.raises(UsageError, match="2 ranks, but a database contains one"):
        msprof_db.export(combine(ranks), tmp_path / "msprof_1.db")
    assert not (tmp_path / "msprof_1.db").exists()
