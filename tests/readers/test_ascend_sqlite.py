"""Databases of Ascend's tools that somebody made to do harm, or that are damaged: only data is read, and reading ends."""

import contextlib
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import stepscope
from stepscope.errors import DataError
from stepscope.io import open_source
from stepscope.io.discover import Source
from stepscope.model.trace import Trace
from stepscope.readers.ascend.ascend_db import reader as ascend_db
from stepscope.readers.ascend.ascend_db import sqlite

SAMPLE = Path(__file__).parent.parent / "samples" / "ascend_db" / "by-hand" / "ascend_pytorch_profiler_0.db"
# It would count for ever.
ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select i as startNs, i as endNs, i as globalTaskId from n"
NO_TABLE = "a view or a virtual table, which is code and not data: it is not read"


@pytest.fixture(autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache outside `tmp_path`: tests open that folder, and it must not change while it is read."""
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))


def changed(tmp_path: Path, *statements: str) -> Path:
    file = tmp_path / "ascend_pytorch_profiler_0.db"
    shutil.copy(SAMPLE, file)
    with closing(sqlite3.connect(file)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    return file


def endless(path: Path) -> Path:
    """The database of the report: a few kilobytes, every table of it a view without end."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table STRING_IDS (id, value)")
        database.execute(f"create view TASK as {ENDLESS}")
        database.execute(f"create view CANN_API as {ENDLESS}")
        database.commit()
    return path


def problems(trace: Trace) -> dict[str, str]:
    return dict(trace.problems.select("where", "what").collect().iter_rows())


def test_a_view_in_the_place_of_a_table_is_a_problem_and_the_rest_opens(tmp_path: Path) -> None:
    whole = stepscope.open(SAMPLE).spans.collect()
    tasks = whole.filter(whole["kind"].cast(str).is_in(["kernel", "copy", "set", "sync"])).height
    assert 0 < tasks < whole.height
    trace = stepscope.open(changed(tmp_path, "drop table TASK", f"create view TASK as {ENDLESS}"))
    assert problems(trace)["TASK"] == NO_TABLE
    assert 0 < trace.spans.collect().height < whole.height


def test_a_database_of_views_alone_is_refused_and_its_views_are_named(tmp_path: Path) -> None:
    file = endless(tmp_path / "views.db")
    assert file.stat().st_size < 32_768 and ascend_db.sniff(file)
    with pytest.raises(DataError, match="no spans in it; CANN_API, TASK: views, which are not read"):
        stepscope.open(file)


def test_a_view_that_passes_for_a_table_is_not_run(tmp_path: Path) -> None:
    with closing(sqlite.Connection(endless(tmp_path / "views.db"))) as database:
        database.tables.add("TASK")
        with pytest.raises(sqlite3.DatabaseError, match=r"prohibited|not authorized"):
            list(database.batches("TASK", ["startNs"]))


def test_a_virtual_table_is_not_read(tmp_path: Path) -> None:
    trace = stepscope.open(changed(tmp_path, "drop table TASK", "create virtual table TASK using rtree(id, startNs, endNs)"))
    assert problems(trace)["TASK"] == NO_TABLE


def test_a_column_that_is_computed_is_not_computed(tmp_path: Path) -> None:
    """A gigabyte for each row, were it asked for."""
    file = changed(tmp_path, "alter table TASK add column modelId2 generated always as (hex(zeroblob(499999999))) virtual")
    with closing(sqlite.Connection(file)) as database:
        assert "modelId2" not in database.columns("TASK")
    assert stepscope.open(file).spans.collect().height == stepscope.open(SAMPLE).spans.collect().height


def test_names_with_quotes_are_only_names(tmp_path: Path) -> None:
    file = tmp_path / "quotes.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute('create table "a""b" ("c""d")')
        database.execute('insert into "a""b" values (7)')
        database.commit()
    with closing(sqlite.Connection(file)) as found:
        assert found.columns('a"b') == ['c"d']
        assert list(found.batches('a"b', ['c"d', None])) == [[(7, None)]]


def test_nothing_but_tables_can_be_asked_for(tmp_path: Path) -> None:
    with closing(sqlite.Connection(SAMPLE)) as database:
        for statement in (
            ENDLESS,
            "select load_extension('x')",
            "select hex(zeroblob(10))",
            f"attach '{tmp_path / 'other'}' as other",
            "pragma user_version=3",
            "create table x (y)",
        ):
            with pytest.raises(sqlite3.DatabaseError):
                database._run(statement)
    assert not (tmp_path / "other").exists()


def looped(path: Path) -> Path:
    """A table whose pages are linked so that it has 30 ** 8 rows: eight levels of 30 links each that all lead to the next level."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma page_size=512")
        database.execute("create table TASK (startNs)")
        database.execute("insert into TASK values (1)")
        database.commit()
    data = bytearray(path.read_bytes())
    leaf, many = bytes(data[512:1024]), 30
    last = len(data) // 512  # pages are numbered from 1
    for level in range(8):
        below = last + level + 1
        cells = b"".join(struct.pack(">IB", below, key + 1) for key in range(many))
        start = 512 - len(cells)
        head = struct.pack(">BHHHBI", 5, 0, many, start, 0, below) + b"".join(struct.pack(">H", start + 5 * key) for key in range(many))
        content = head + bytes(start - len(head)) + cells
        if level == 0:
            data[512:1024] = content
        else:
            data += content
    data += leaf
    data[28:32] = struct.pack(">I", len(data) // 512)
    path.write_bytes(data)
    return path


def test_a_table_has_no_more_rows_than_its_file_has_room_for(tmp_path: Path) -> None:
    file = looped(tmp_path / "looped.db")
    with closing(sqlite.Connection(file)) as database:
        found = database.batches("TASK", ["startNs"])
        with pytest.raises(sqlite3.DatabaseError, match=f"more rows than a file of {file.stat().st_size:,} bytes can hold"):
            list(found)


def test_reading_ends_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_LEAST_S", -1e9)
    monkeypatch.setattr(sqlite, "_CHECKED", 1)
    with pytest.raises(sqlite3.DatabaseError, match="not read to its end in"):
        sqlite.Connection(SAMPLE)


def test_ctrl_c_stops_a_statement_that_would_run_for_ever(tmp_path: Path) -> None:
    """The guard against views is taken away, so that there is something to stop."""
    file = endless(tmp_path / "views.db")
    code = (
        "import sys, pathlib\n"
        "from stepscope.readers.ascend.ascend_db import sqlite as _ascend_sqlite\n"
        "database = _ascend_sqlite.Connection(pathlib.Path(sys.argv[1]))\n"
        "database._database.set_authorizer(None)\n"
        "database._size = 1 << 60\n"
        "database._database.set_trace_callback(lambda statement: print('begun', flush=True))\n"
        "database._run('select count(*) from TASK')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        while process.poll() is None:  # a signal that comes while the callback prints is lost in it
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
        assert process.stderr is not None
        err = process.stderr.read()
    assert err.strip().splitlines()[-1] == "KeyboardInterrupt", err


@pytest.mark.parametrize(("name", "table"), [("analysis.db", "CommAnalyzerTime"), ("cluster_analysis.db", "ClusterStepTraceTime")])
def test_a_view_in_a_database_that_lies_beside_is_a_problem_too(name: str, table: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / name)) as database:
        database.execute(f"create view {table} as {ENDLESS}")
        database.commit()
    if name == "analysis.db":
        trace = stepscope.open(changed(tmp_path))
    else:
        (tmp_path / "cluster_communication_matrix.json").write_text(
            '{"p2p": {"step1": {"send@1": {"0-1": {"Transit Size(MB)": 1, "Transit Time(ms)": 1, "Transport Type": "HCCS"}}}}}'
        )
        trace = stepscope.open(tmp_path)
    assert problems(trace)[f"{name} {table}"] == NO_TABLE


@pytest.mark.parametrize("name", ["analysis.db", "communication_analyzer.db", "profiler_metadata.json"])
def test_what_lies_beside_a_database_is_part_of_its_key_and_no_link_out_of_the_folder(name: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    file = changed(place)
    keys = [open_source.cached_run(Source(file, "ascend_db"))]
    (place / name).write_text("{}")
    keys.append(open_source.cached_run(Source(file, "ascend_db")))
    (place / name).write_text("{ }")
    keys.append(open_source.cached_run(Source(file, "ascend_db")))
    assert len(set(keys)) == 3
    (place / name).rename(tmp_path / name)
    (place / name).symlink_to(tmp_path / name)
    assert open_source.cached_run(Source(file, "ascend_db")) == keys[0]
    assert problems(stepscope.open(file))[name] == "a link that leads out of its folder, which is not followed"


@pytest.mark.parametrize("table", ["TASK", "COMMUNICATION_OP"])
def test_a_table_that_is_gone_is_no_idle_device(table: str, tmp_path: Path) -> None:
    """The sample has compute, communication and its tasks: each of the three shows that the others ran."""
    fill = [
        "create table if not exists COMMUNICATION_TASK_INFO (globalTaskId)",
        "insert into COMMUNICATION_TASK_INFO (globalTaskId) values (9999)",
    ]
    trace = stepscope.open(changed(tmp_path, *fill, f"drop table {table}"), cache=False)
    assert trace.overview().select("compute_share", "idle_share", "exposed_communication_share").row(0) == (None, None, None)
    assert any(what.startswith(f"{table} has no rows") for what in problems(trace).values())
    headline = trace.verdict(topic="overview")["text"][0]
    assert "unknown" in headline and "%" not in headline


def test_kernels_without_their_table_are_known_by_the_types_of_their_tasks(tmp_path: Path) -> None:
    whole = stepscope.open(SAMPLE, cache=False).overlap().select("computing_ns", "exposed_ns", "free_ns")
    trace = stepscope.open(changed(tmp_path, "drop table COMPUTE_TASK_INFO"), cache=False)
    assert trace.overlap().select("computing_ns", "exposed_ns", "free_ns").rows() == whole.rows()
    assert problems(trace)["COMPUTE_TASK_INFO"] == "no rows: kernels have the names of their task types"
