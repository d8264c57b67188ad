"""SQL: answers over tables and analyses, no way to files or the network, bounded memory and rows, and a process that is locked."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny
from programs import environment
from settling import until
from stepscope.errors import StepscopeError, UsageError
from stepscope.model.trace import Trace
from stepscope.query import queries, sandbox
from stepscope.query.plan import Need, Plan
from stepscope.query.process import QueryProcess
from stepscope.query.queries import Limits, Query

RECORDING = Path(__file__).parent / "samples/run/stepscope-0.1.0/resnet50_h200"
LINUX = sys.platform == "linux"
TINY = """
    kind    track  name      start_ns             dur_ns  step
    op      0      aten::mm  1700000000000000000  40      0
    kernel  1      gemm      1700000000000000010  20      0
    kernel  1      relu      1700000000000000030  5       0
    op      0      aten::mm  1700000000000001000  30      1
    kernel  1      gemm      1700000000000001010  10      1
"""
STEPS = """
    step  start_ns             end_ns               how
    0     1700000000000000000  1700000000000000100  marker
    1     1700000000000001000  1700000000000001100  marker
"""


@pytest.fixture(scope="module")
def process() -> Iterator[QueryProcess]:
    with QueryProcess() as started:
        yield started


@pytest.fixture(scope="module")
def trace() -> Trace:
    return stepscope.open(RECORDING)


@pytest.fixture
def small() -> Trace:
    return tiny.trace(spans=TINY, steps=STEPS)


# Files and the network

# FILE is a file with a secret, URL a server that counts who comes.
REACHES = [
    r"select 'a' like 'a' escape E'\'', * from read_csv('FILE') b where 'x'='x'",
    "select Q'[']' as x, * from read_csv('FILE') -- ']",
    "select * from read_csv('FILE')",
    "select * from READ_CSV ('FILE')",
    "select * from \"read_csv\"('FILE')",
    "select * from read_csv/* */('FILE')",
    "select * from read_csv_auto('FILE')",
    "select * from read_csv($$FILE$$)",
    "select $a$'$a$ as x, * from read_csv('FILE') -- '",
    "select 1 /* /* */ ' */ as x, * from read_csv('FILE') -- '",
    "with a as (select * from read_csv('FILE')) select * from a",
    "select * from steps join read_csv('FILE') on true",
    "select (select content from read_text('FILE'))",
    "select * from read_text('FILE')",
    "select * from read_blob('FILE')",
    "select * from read_json('FILE')",
    "select * from read_json_objects('FILE')",
    "select * from read_ndjson_objects('FILE')",
    "select * from read_parquet('FILE')",
    "select * from parquet_scan('FILE')",
    "select * from parquet_metadata('FILE')",
    "select * from parquet_schema('FILE')",
    "select * from sniff_csv('FILE')",
    "select * from glob('FILE')",
    "select * from 'FILE'",
    'select * from "FILE"',
    "from 'FILE'",
    "table 'FILE'",
    "describe 'FILE'",
    "summarize 'FILE'",
    "explain analyze select * from read_csv('FILE')",
    "select * from query('select * from read_csv(''FILE'')')",
    "select * from query_table('FILE')",
    "select * from query_table(['FILE'])",
    "select * from json_execute_serialized_sql(json_serialize_sql('select * from read_csv(''FILE'')'))",
    "copy (select 1) to 'FILE'",
    "copy steps from 'FILE'",
    "export database 'FILE'",
    "import database 'FILE'",
    "attach 'FILE' as x",
    "install httpfs",
    "load httpfs",
    "load 'FILE'",
    "pragma enable_external_access",
    "set enable_external_access = true",
    "set global enable_external_access = true",
    "reset enable_external_access",
    "set lock_configuration = false",
    "set temp_directory = 'FILE'",
    "select 1; copy (select 1) to 'FILE'",
    "select getenv('SECRET')",
    "call read_csv('FILE')",
    "create table x as select * from read_csv('FILE')",
    "create secret (type s3)",
    "prepare x as select * from read_csv('FILE')",
    "execute x",
    "select * from read_csv('URL')",
    "select * from 'URL'",
    "select * from read_parquet('URL')",
    "select * from read_text('s3://bucket/key')",
    "vacuum",
    "checkpoint",
]


@pytest.fixture
def reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str, list[str]]]:
    """A file with a secret, the address of a server, and who came to it."""
    file = tmp_path / "secret.csv"
    file.write_text("secret\nxyzzy\n")
    monkeypatch.setenv("SECRET", "xyzzy")
    came: list[str] = []

    class Notes(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            came.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *words: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Notes)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield file, f"http://127.0.0.1:{server.server_port}/x.csv", came
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("sql", REACHES)
def test_no_query_reaches_a_file_or_the_network(
    sql: str, process: QueryProcess, small: Trace, reached: tuple[Path, str, list[str]]
) -> None:
    file, url, came = reached
    sql = sql.replace("FILE", str(file)).replace("URL", url)
    with pytest.raises(UsageError) as refused:
        Query(process, sql).frame(small)
    assert "xyzzy" not in str(refused.value) and "\n" not in str(refused.value)
    # The engine itself refuses, too, when nothing of ours looks at the query first.
    with pytest.raises(UsageError) as refused:
        process.call("parse", sql)
        process.call("answer", 1000, 10**6)
    assert "xyzzy" not in str(refused.value)
    assert came == [] and file.read_text() == "secret\nxyzzy\n"


@pytest.mark.parametrize("name", ["engine", "memory", "_SETTINGS", "source", "sys", "self", "tables", "found"])
def test_variables_of_the_process_are_no_tables(name: str, process: QueryProcess) -> None:
    process.call("parse", f"select * from {name}")
    with pytest.raises(UsageError, match="does not exist"):
        process.call("answer", 10, 10**6)


def test_what_the_engine_says_of_itself_names_no_file(process: QueryProcess, small: Trace) -> None:
    settings = dict(Query(process, "select name, value from duckdb_settings()").frame(small).rows())
    assert (settings["enable_external_access"], settings["lock_configuration"], settings["temp_directory"]) == ("false", "true", "")
    assert settings["python_enable_replacements"] == "false"


# The sandbox

TRIES = """
import ctypes, json, os, socket, subprocess, sys, threading
from stepscope.query import sandbox

def tried(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"

def all_tries():
    return {
        "read": tried(lambda: open("/etc/passwd").read()),
        "write": tried(lambda: open(sys.argv[2], "w").write("x")),
        "list": tried(lambda: os.listdir("/")),
        "tcp": tried(lambda: socket.create_connection(("127.0.0.1", int(sys.argv[3])), 5)),
        "udp": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))),
        "program": tried(lambda: os.execv("/bin/true", ["true"])) if sys.argv[1] != "none" else "",
        "process": tried(lambda: os.fork() or os._exit(0)),
    }

waiting, found = threading.Event(), {}
earlier = threading.Thread(target=lambda: waiting.wait() and sys.argv[1] == "seccomp" and found.update(earlier=all_tries()))
earlier.start()
os.sysconf("SC_PAGE_SIZE")
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
held = {"landlock": sandbox.restrict_files, "seccomp": sandbox.refuse_calls, "none": lambda: True}[sys.argv[1]]()
found["main"] = all_tries()
waiting.set()
earlier.join()
later = threading.Thread(target=lambda: found.update(later=all_tries()))
later.start()
later.join()
print(json.dumps([held, found]))
"""


@pytest.fixture
def listener() -> Iterator[int]:
    import socket

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def tries(way: str, tmp_path: Path, port: int) -> tuple[bool, dict[str, dict[str, str]]]:
    words = [sys.executable, "-c", TRIES, way, str(tmp_path / "written"), str(port)]
    held, found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return held, found


@pytest.mark.skipif(not LINUX, reason="the sandbox is Linux's")
def test_without_the_sandbox_all_of_it_is_possible(tmp_path: Path, listener: int) -> None:
    _, found = tries("none", tmp_path, listener)
    assert {key: value for key, value in found["main"].items() if value != "done"} == {"program": ""}


@pytest.mark.skipif(not sandbox.landlock_version(), reason="this kernel has no Landlock")
def test_landlock_refuses_files_and_programs_and_tcp(tmp_path: Path, listener: int) -> None:
    held, found = tries("landlock", tmp_path, listener)
    assert held
    for thread in ("main", "later"):
        refused = {key for key, value in found[thread].items() if value == "PermissionError"}
        assert refused >= {"read", "write", "list", "program"} | ({"tcp"} if sandbox.landlock_version() >= 4 else set())
    assert not (tmp_path / "written").exists()


@pytest.mark.skipif(not LINUX, reason="the sandbox is Linux's")
def test_seccomp_refuses_files_sockets_programs_and_processes_in_threads_that_were_there_before(tmp_path: Path, listener: int) -> None:
    held, found = tries("seccomp", tmp_path, listener)
    if not held:
        pytest.skip("no seccomp here, or an architecture without a list of calls")
    for thread in ("main", "earlier", "later"):
        assert set(found[thread].values()) == {"PermissionError"}, (thread, found[thread])
    assert not (tmp_path / "written").exists()


def test_a_process_says_what_it_is_locked_by(process: QueryProcess) -> None:
    held = process.call("sandbox")
    assert sandbox.LIMITS in held
    if not LINUX or not sandbox.landlock_version():
        pytest.skip("this system has no Landlock")
    assert sandbox.LANDLOCK in held


@pytest.mark.skipif(not LINUX, reason="/proc is Linux's")
def test_the_process_has_no_file_open_but_its_pipes(process: QueryProcess, small: Trace) -> None:
    Query(process, "select count(*) from spans").frame(small)
    pid = process.pid
    opened = {link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()}
    kinds = {str(target).partition(":")[0] for target in opened}
    assert kinds <= {"pipe", "/dev/null", "anon_inode"}
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert "Max file size             0                    0" in limits


ENDLESS = "select count(*) from range(1000000000) a cross join range(1000000000) b where a.range * b.range % 7 = 3"


@pytest.mark.skipif(not LINUX, reason="/proc is Linux's")
@pytest.mark.parametrize("polls", [0, 3], ids=["before the query", "during the query"])
def test_the_process_ends_with_the_one_that_started_it(polls: int) -> None:
    code = "import os, signal; from stepscope.query.process import QueryProcess; p = QueryProcess(); print(p.pid, flush=True)\n"
    code += f"p.call('sandbox'); p.call('parse', {ENDLESS!r}); left = iter(range({polls}))\n"
    code += "p.ask(('answer', 10, 1000), on_progress=lambda *_: next(left, None) is None and os.kill(os.getpid(), signal.SIGKILL))"
    started = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    status = Path(f"/proc/{int(started.stdout)}/status")

    def is_running() -> bool:
        try:
            return "State:\tZ" not in status.read_text()
        except OSError:
            return False

    assert not until(is_running, lambda running: not running)


# Memory and rows

LARGE = "select a.name || b.name || c.name as z from spans a cross join spans b cross join spans c order by z desc limit 5000000"


def test_a_query_that_needs_too_much_memory_is_one_line_and_the_process_stays_small(trace: Trace) -> None:
    with QueryProcess(memory=300_000_000) as process:
        with pytest.raises(UsageError, match=r"needed more than 0\.3 GB of memory"):
            Query(process, LARGE).frame(trace)
        if LINUX and process.is_alive:
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1024
            assert peak < 1_200_000_000
            assert Query(process, "select 1 as one").frame(trace).rows() == [(1,)]


def test_tables_that_do_not_fit_are_one_line(trace: Trace) -> None:
    with QueryProcess(memory=1_000_000) as process, pytest.raises(UsageError, match=r"tables .* need more than 0\.001 GB of memory"):
        Query(process, "select * from spans order by dur_ns").frame(trace)


def test_an_answer_of_too_many_rows_is_one_line(process: QueryProcess, small: Trace) -> None:
    query = Query(process, "select * from range(1000000000000)")
    with pytest.raises(UsageError, match="more than 1,000 rows"):
        query.answer(small, {}, Limits(rows=1000))
    assert Query(process, "select * from range(1000)").answer(small, {}, Limits(rows=1000))[1] == 1000


def test_an_answer_of_too_many_bytes_is_one_line(process: QueryProcess, small: Trace) -> None:
    with pytest.raises(UsageError, match=r"has 100 rows, 0\.0 GB: add a LIMIT"):
        Query(process, "select repeat('x', 1000) as x from range(100)").answer(small, {}, Limits(rows=1000, size=10_000))


def test_a_query_of_too_many_characters_is_refused(process: QueryProcess) -> None:
    with pytest.raises(UsageError, match="at most 100,000"):
        Query(process, "select 1 -- " + "x" * 100_000)


def test_a_query_that_is_nested_deeply_is_refused_and_the_process_lives(process: QueryProcess, small: Trace) -> None:
    with pytest.raises(StepscopeError):
        Query(process, "select " + "(" * 30_000 + "1" + ")" * 30_000)
    with QueryProcess() as another:
        assert Query(another, "select 1 as one").frame(small).item() == 1


# Answers


def test_the_python_interface_answers_without_a_process_of_ones_own(small: Trace) -> None:
    assert queries.answer(small, "select name, sum(dur_ns) from spans where kind = 'kernel' group by name order by 2").rows() == [
        ("relu", 5),
        ("gemm", 30),
    ]


@pytest.mark.parametrize(
    ("sql", "columns", "rows"),
    [
        ("select sum(dur_ns) from spans", {"dur_ns": pl.Int64}, [(105,)]),
        ("select min(dur_ns), max(dur_ns) from spans", {"min(dur_ns)": pl.Int64, "max(dur_ns)": pl.Int64}, [(5, 40)]),
        ("select avg(dur_ns) as mean from spans", {"mean": pl.Float64}, [(21.0,)]),
        ("select count(*) as n, count(scope) as m from spans", {"n": pl.Int64, "m": pl.Int64}, [(5, 0)]),
        ("select dur_ns / 2 as a, dur_ns * 1.5 as b from spans where dur_ns = 5", {"a": pl.Float64, "b": pl.Float64}, [(2.5, 7.5)]),
        ("select sum(start_ns) as far from spans", {"far": pl.Int64}, [(8_500_000_000_000_002_050,)]),
        ("select sum(start_ns) * 2 as farther from spans", {"farther": pl.Float64}, [(1.70000000000000041e19,)]),
        ("select KIND, Count(*) AS N from SPANS group by Kind order by n", {"kind": pl.String, "N": pl.Int64}, [("op", 2), ("kernel", 3)]),
        ("select s.step, t.step from steps s join steps t on s.step < t.step", {"step": pl.Int32, "step_1": pl.Int32}, [(0, 1)]),
        ("select list(name order by start_ns) as l from spans where step = 1", {"l": pl.List(pl.String)}, [(["aten::mm", "gemm"],)]),
        ("select {'a': 1} as s, [1, 2] as l", {"s": pl.String, "l": pl.List(pl.Int32)}, [("{'a': 1}", [1, 2])]),
        ("select address, free_ns from allocations", {"address": pl.UInt64, "free_ns": pl.Int64}, []),
        ("select start_ns from spans order by start_ns desc limit 1", {"start_ns": pl.Int64}, [(1_700_000_000_000_001_010,)]),
        ("from steps select step", {"step": pl.Int32}, [(0,), (1,)]),
        ("values (1, 'a')", {"col0": pl.Int32, "col1": pl.String}, [(1, "a")]),
        ("with spans as (select * from spans where step = 1) select count(*) as n from spans", {"n": pl.Int64}, [(2,)]),
        ("select interval 2 day as i, date '2026-01-02' as d", {"i": pl.String, "d": pl.String}, [("2 days", "2026-01-02")]),
        ("select date '99999-01-01' as d, '\\xFFA'::blob as b", {"d": pl.String, "b": pl.String}, [("99999-01-01", "\\xFFA")]),
        ("select timestamp '20000-01-01 10:00:00' as t", {"t": pl.String}, [("20000-01-01 10:00:00",)]),
    ],
)  # fmt: skip
def test_answers_have_plain_types_and_names_that_keep_the_unit(
    sql: str, columns: dict[str, pl.DataType], rows: list[tuple[object, ...]] | None, process: QueryProcess, small: Trace
) -> None:
    answer = Query(process, sql).frame(small)
    assert dict(answer.schema) == columns
    assert rows is None or answer.rows() == rows


def test_show_tables_describe_and_explain_work(process: QueryProcess, small: Trace) -> None:
    names = Query(process, "show tables").frame(small)["name"].to_list()
    assert {"spans", "steps", "operators", "overlap"} <= set(names)
    described = Query(process, "describe steps").frame(small)
    assert described["column_name"].to_list() == small.steps.collect_schema().names()
    assert Query(process, "explain select name from spans").frame(small).height == 1
    assert Query(process, "explain analyze select count(*) from spans").frame(small).height == 1
    listed = Query(process, "select table_name, count(*) as n from information_schema.columns group by 1").frame(small)
    assert dict(listed.rows())["tracks"] == len(small.tracks.collect_schema())


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("select nam from spans", 'Referenced column "nam" not found in FROM clause! Candidate bindings: "name"'),
        ("select * from spanz", "no table 'spanz'; did you mean 'spans'?"),
        ("select * from nowhere_at_all", "no table 'nowhere_at_all'; there are spans, tracks, steps"),
        ("selec 1", 'syntax error at or near "selec"'),
        ("select nosuch(name) from spans", "Scalar Function with name nosuch does not exist!"),
        ("select * from query('select 1')", "write the names of the tables in the query"),
        ("", "empty; expected a query"),
        ("delete from spans", "DELETE is not a query; expected SELECT"),
        ("pivot spans on kind using count(*)", "PIVOT needs the values"),
        ("update extensions", "this statement is not a query; expected SELECT"),
        ("select " + "(" * 2000 + "1" + ")" * 2000, "the query is nested too deeply"),
        ("select '\udcff'", "the query has an invalid character at position 9"),
    ],
)
def test_a_mistake_is_one_line_that_helps(sql: str, line: str, process: QueryProcess, small: Trace) -> None:
    with pytest.raises(UsageError) as refused:
        Query(process, sql).frame(small)
    assert line in str(refused.value) and "\n" not in str(refused.value)


# What is read

# Queries for which reading only what is named, or only some rows, could be wrong.
NARROW = [
    "select count(*) as n from spans",
    "select kind, count(*) as spans from spans group by kind order by spans desc, kind",
    "select * from spans where step = 9 and kind = 'kernel' order by span limit 7",
    "select name from spans where kind = 'kernel' limit 5",
    "select name from spans where kind = 'kernel' limit 5 offset 3",
    "select name from spans where kind = 'kernel' and name like '%gemm%' limit 5",
    "select name, dur_ns, span from spans where kind = 'op' order by dur_ns desc, span limit 9 offset 2",
    "select name, dur_ns, span from spans order by dur_ns, span desc limit 9",
    "select step, span from spans order by step desc, span limit 5",
    "select step, span from spans order by step nulls first, span limit 5",
    "select step, span from spans where step is null or step > 0 order by step desc, span limit 23000",
    "select span, flow_in from spans order by flow_in, span limit 20000 offset 3000",
    "select self_ns as dur_ns, span from spans order by dur_ns desc, span limit 5",
    "select dur_ns as dur_ns, span from spans order by DUR_NS desc, span limit 5",
    "select distinct kind from spans order by kind desc limit 3",
    "select dur_ns, span from spans where name like '%gemm%' order by dur_ns desc, span limit 5",
    "select * from spans order by dur_ns desc, span limit 5",
    "select count(*) as n from spans where not kind = 'kernel'",
    "select count(*) as n from spans where kind = 'kernel' or step = 9",
    "select count(*) as n from spans where 5000 < dur_ns and dur_ns <= 100000 and step between 8 and 9",
    "select count(*) as n from spans where start_ns + dur_ns > 1794723221424244272 and start_ns - 5 < 1794723221442987711",
    "select count(*) as n from spans where kind < 'kernel'",
    "select count(*) as n from spans where dur_ns > 1.5 and kind in ('kernel', 'op') and step in (9, 10)",
    "select count(*) as n from spans where step = '9'",
    "select count(*) as n from spans where step is null",
    "select step, count(*) as n from spans where step <> 9 group by step having count(*) > 5 order by step limit 2",
    "with k as (select * from spans where kind = 'kernel') select name, sum(dur_ns) as t from k group by name order by t, name limit 3",
    "select count(*) as n from (select distinct * from spans)",
    "select count(*) as n from (select distinct * exclude (span, parent, op, flow_in, correlation, args, start_ns) from spans)",
    "select count(*) as n from (select * from steps union select * from steps)",
    "select count(*) as n from (select * from steps except select * from steps where step = 9)",
    "select count(*) as n from spans natural join tracks",
    "select s.kind, t.label, count(*) as n from spans s join tracks t using (rank, track) group by all order by all",
    "select a.n from (select count(*) as n from spans where kind = 'op') a, (select count(*) as m from spans where kind = 'kernel') b",
    "select count(s) as n from spans s",
    "select max(hash(s)) as h from steps s",
    "select s as whole from steps s order by s.step limit 1",
    "select b from (select * from steps) t(a, b, c) order by b",
    "select #2 as x from steps order by 1",
    "select columns('.*_ns') from steps order by 1",
    "select max(x) as m from (select columns('start.*') as x from steps)",
    "from steps order by step",
    "select * from steps order by 2 desc limit 2",
    "select * exclude (args) from spans where span < 5",
    "pivot steps on step in (8, 9) using count(*) group by how",
    "unpivot (select step, start_ns, end_ns from steps) on start_ns, end_ns order by all",
    "summarize select step from steps",
    "select dur_ns as start_ns from spans where start_ns > 1794723221442987711 order by 1 limit 3",
    "select (select count(*) from spans where spans.step = steps.step and dur_ns > 1000) as n from steps order by step",
    "select step from steps where exists (select * from spans where spans.step = steps.step and kind = 'kernel') order by step",
    "select name from spans tablesample reservoir(100 rows) repeatable (7) where kind = 'nothing'",
    "select sum(dur_ns) over (order by start_ns) as s from spans where kind = 'kernel' order by s limit 5",
    "select any_value(kind) as k, count(*) as n from spans limit 1",
    "select type, calls from operator_types where device = 'gpu' order by calls desc, type limit 4",
    "with recursive t(n) as (select 1 union all select n + 1 from t where n < 3) select n, step from t join steps on true order by all",
]


@pytest.mark.parametrize("sql", NARROW)
def test_reading_only_what_a_query_needs_changes_no_answer(
    sql: str, process: QueryProcess, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = Query(process, sql).frame(trace)
    monkeypatch.setattr(Plan, "need", lambda *all: Need())
    whole = Query(process, sql).frame(trace)
    assert narrow.schema == whole.schema
    assert narrow.rows() == whole.rows()


def test_conditions_and_limits_are_applied_while_a_table_is_read(process: QueryProcess, trace: Trace) -> None:
    def read(sql: str) -> tuple[int, list[str]]:
        frame = Query(process, sql)._needs()["spans"].apply(trace.spans).collect()
        return frame.height, frame.columns

    spans = trace.spans.collect()
    steps = spans.filter(step=9)
    assert read("select name, dur_ns from spans where step = 9") == (steps.height, ["name", "dur_ns", "step"])
    assert read("select * from spans limit 1000") == (1000, spans.columns)
    assert read("select name from spans where step = 9 limit 10 offset 5") == (15, ["name", "step"])
    longest = spans.filter(kind="op").sort("dur_ns")["dur_ns"][-10]
    tenth = spans.filter(pl.col("kind") == "op", pl.col("dur_ns") >= longest).height
    assert read("select name from spans where kind = 'op' order by dur_ns desc limit 10") == (tenth, ["kind", "name", "dur_ns"])
    kernels = steps.filter(kind="kernel", track=steps.filter(kind="kernel")["track"][0])
    end = int(kernels["start_ns"][20])
    inside = kernels.filter(pl.col("start_ns") < end)
    track = kernels["track"][0]
    sql = (
        f"select span from spans s where s.kind = 'kernel' and step = 9 and track in ({track}, -1) and start_ns < {end} and dur_ns + 1 > 0"
    )
    assert read(sql) == (inside.height, ["span", "track", "kind", "start_ns", "dur_ns", "step"])
    assert read("select count(*) from spans") == (spans.height, ["span"])


def test_only_what_is_named_is_sent_to_the_process(process: QueryProcess, small: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    send_batch = QueryProcess.send_batch

    def record(self: QueryProcess, table: str, content: bytes) -> None:
        sent.append(table)
        send_batch(self, table, content)

    monkeypatch.setattr(QueryProcess, "send_batch", record)
    Query(process, "select 'steps' as x, s.name from spans s -- operators").frame(small)
    assert sent == ["spans"]


@pytest.mark.skipif(not LINUX, reason="looks at processes in /proc")
def test_ctrl_c_ends_a_query_that_is_running(tmp_path: Path) -> None:
    sql = "select count(*) from spans a, spans b, spans c"
    command = [sys.executable, "-m", "stepscope", "query", str(RECORDING), sql]
    query = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment(tmp_path))

    def engine_ticks() -> int:
        """Processor time of the process that answers."""
        children = Path(f"/proc/{query.pid}/task/{query.pid}/children").read_text().split()
        fields = [Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split() for child in children]
        return sum(int(field[11]) for field in fields)

    try:
        assert until(engine_ticks, lambda ticks: ticks > 400) > 400  # it computes for seconds: the tables have arrived
        query.send_signal(signal.SIGINT)
        assert query.communicate(timeout=60)[1] == ""
    finally:
        query.kill()
        query.communicate()
    assert query.returncode == 130
