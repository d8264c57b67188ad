"""Run folders: what is written is read back, a folder that exists is whole, and earlier releases' folders open."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import tiny
from stepscope.errors import DataError, UsageError
from stepscope.io import store
from stepscope.model import rank_tables, schema
from stepscope.model.trace import Meta, Trace

TRACE = tiny.trace(
    spans="""
        kind    track  name      start_ns          dur_ns  step  args
        op      0      aten::mm  1700000000000001  40      0     {"a":1}
        kernel  1      "a_b/c"   1700000000000003  20      0     -
    """,
    steps="""
        step  start_ns          end_ns            how
        0     1700000000000000  1700000000000100  marker
    """,
    problems="""
        file  where  what   lost
        x     y      "z_z"  3
    """,
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    meta = Meta(
        source="s", format="chrome", framework="pytorch", versions={"a": "1"}, world_size=2, ranks=[0], extra={"k": [1, {"n": None}]}
    )
    store.write(Trace(TRACE.tables, meta), tmp_path / "run")
    back = store.read(tmp_path / "run")
    assert back.meta == meta
    for name in schema.TABLES:
        assert_frame_equal(back.table(name).collect(), TRACE.table(name).collect())


def test_any_parquet_tool_reads_the_tables(tmp_path: Path) -> None:
    store.write(TRACE, tmp_path / "run")
    assert pl.read_parquet(tmp_path / "run" / "spans.parquet")["start_ns"].to_list() == [1700000000000001, 1700000000000003]
    assert {file.name for file in (tmp_path / "run").iterdir()} == {
        "run.json",
        *(f"{name}.parquet" for name in schema.TABLES if name not in rank_tables.TABLES),
    }


def test_a_question_about_some_columns_reads_those_only(tmp_path: Path) -> None:
    store.write(TRACE, tmp_path / "run")
    plan = store.read(tmp_path / "run").spans.select("name", "dur_ns").explain()
    assert "PROJECT 2/22 COLUMNS" in plan


def test_a_run_folder_is_not_replaced_unless_told(tmp_path: Path) -> None:
    store.write(TRACE, tmp_path / "run")
    with pytest.raises(UsageError, match="exists"):
        store.write(TRACE, tmp_path / "run")
    store.write(tiny.trace(), tmp_path / "run", overwrite=True)
    assert store.read(tmp_path / "run").spans.collect().height == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_empty_folder_is_taken_as_the_place_to_write(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    store.write(TRACE, tmp_path / "run")
    assert store.sniff(tmp_path / "run")


def test_what_is_not_a_run_folder_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("too")
    for name in ("home", "file"):
        with pytest.raises(UsageError, match="not a run folder"):
            store.write(TRACE, tmp_path / name, overwrite=True)
    assert (tmp_path / "home" / "thesis.tex").read_text() == "years of work"


def test_a_failed_write_leaves_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    store.write(TRACE, tmp_path / "run")
    bad = Trace({"spans": TRACE.spans.with_columns(name=pl.col("name").cast(pl.String).str.to_integer().cast(pl.String))})
    with pytest.raises(DataError, match="could not be written"):
        store.write(bad, tmp_path / "run", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert store.read(tmp_path / "run").spans.collect().height == 2


def test_a_killed_writer_leaves_no_folder_under_the_name(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; sys.path.insert(0, 'tests'); import tiny; from pathlib import Path; from stepscope import store\n"
        "import polars as pl\n"
        "sink, calls = pl.LazyFrame.sink_parquet, []\n"
        "def dying(self, *args, **options):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 4: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return sink(self, *args, **options)\n"
        "pl.LazyFrame.sink_parquet = dying\n"
        f"store.write(tiny.trace(), Path({str(tmp_path / 'run')!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent.parent, check=False)
    assert done.returncode == -9
    assert not (tmp_path / "run").exists()
    store.write(TRACE, tmp_path / "run")
    assert store.read(tmp_path / "run").spans.collect().height == 2


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{", "not a run folder's header"),
        ("[]", "not a run folder's header"),
        ("{}", "has no format_version"),
        ('{"format_version": "1"}', "has no format_version"),
        ('{"format_version": 99}', "written by a newer stepscope"),
        ('{"format_version": 1, "ranks": "all"}', "ranks"),
    ],
)
def test_a_header_that_cannot_be_understood_is_named(header: str, message: str, tmp_path: Path) -> None:
    store.write(TRACE, tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(header)
    with pytest.raises(DataError, match=message) as caught:
        store.read(tmp_path / "run")
    assert str(caught.value).startswith(str(tmp_path / "run" / "run.json"))


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    store.write(TRACE, tmp_path / "run")
    file = tmp_path / "run" / "steps.parquet"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"steps\.parquet: not a complete Parquet file"):
        store.read(tmp_path / "run")


def test_a_folder_of_an_earlier_release_opens(tmp_path: Path) -> None:
    """It lacks a table and a column that came later, and has a word and a column that are gone."""
    store.write(TRACE, tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({key: record[key] for key in ("format_version", "source")} | {"gone": 1}))
    (tmp_path / "run" / "links.parquet").unlink()
    spans = pl.read_parquet(tmp_path / "run" / "spans.parquet").drop("scope")
    spans = spans.with_columns(pl.col("kind").cast(pl.String).cast(pl.Enum(["op", "kernel"])), older=pl.lit(1))
    spans.write_parquet(tmp_path / "run" / "spans.parquet")
    back = store.read(tmp_path / "run")
    assert list(back.spans.collect_schema()) == list(schema.TABLES["spans"])
    assert back.spans.collect()["scope"].to_list() == [None, None]
    assert back.spans.filter(pl.col("kind") == "kernel").collect().height == 1
    assert back.table("links").collect().height == 0


def test_a_folder_without_spans_is_not_a_run(tmp_path: Path) -> None:
    store.write(TRACE, tmp_path / "run")
    (tmp_path / "run" / "spans.parquet").unlink()
    with pytest.raises(DataError, match=r"spans\.parquet: missing"):
        store.read(tmp_path / "run")


def test_a_name_with_stars_is_only_a_name(tmp_path: Path) -> None:
    for name in ("a*", "ab", "[x]?"):
        store.write(tiny.trace() if name == "ab" else TRACE, tmp_path / name)
    assert store.read(tmp_path / "a*").spans.collect().height == 2
    assert store.read(tmp_path / "[x]?").spans.collect().height == 2


def test_a_table_that_was_lost_is_named(tmp_path: Path) -> None:
    store.write(tiny.trace(spans="kind name start_ns dur_ns\nop mm 0 10"), tmp_path / "run")
    (tmp_path / "run" / "counters.parquet").unlink()
    with pytest.raises(DataError, match=r"counters\.parquet: missing; the header of the run folder lists it"):
        store.read(tmp_path / "run")


def test_rows_that_cannot_be_and_columns_of_another_type_are_refused_by_name(tmp_path: Path) -> None:
    changes = {
        "1 row with dur_ns below 0": pl.when(pl.col("span") == 3).then(-1).otherwise("dur_ns").alias("dur_ns"),
        "2 rows without start_ns": pl.when(pl.col("span") > 1).then("start_ns").alias("start_ns"),
        "1 row with start_ns beyond 62 bits": pl.when(pl.col("span") == 0).then(2**63 - 1).otherwise("start_ns").alias("start_ns"),
        "column 'track' has the type List(Int32); expected Int32": pl.concat_list("track").alias("track"),
    }
    sample = Path(__file__).parent / "samples" / "run" / "stepscope-0.1.0" / "resnet50_h200"
    for number, (complaint, change) in enumerate(changes.items()):
        run = tmp_path / str(number)
        shutil.copytree(sample, run)
        spans = pl.read_parquet(run / "spans.parquet").sort("span").filter(pl.col("span") < 100)
        assert spans["span"].to_list() == list(range(100)) and spans["dur_ns"][0] > 0
        spans.with_columns(change).write_parquet(run / "spans.parquet")
        with pytest.raises(DataError, match=re.escape(f"spans.parquet: {complaint}")):
            store.read(run)


def test_rows_that_cannot_be_are_left_out_of_what_is_written_and_told(tmp_path: Path) -> None:
    spans = """
        kind  track  name   start_ns             dur_ns
        op    0      good   100                  40
        op    0      back   200                  -5
        op    0      late   9223372036854775807  10
    """
    trace = tiny.trace(spans=spans)
    store.write(trace, tmp_path / "run")
    found = store.read(tmp_path / "run")
    assert found.spans.select(pl.col("name").cast(pl.String)).collect()["name"].to_list() == ["good"]
    lost_by_problem = dict(found.problems.select("what", "lost").collect().iter_rows())
    assert lost_by_problem == {"1 row with dur_ns below 0: left out": 1, "1 row with start_ns beyond 62 bits: left out": 1}
