"""Exports: whole or absent, and read back they give the same answers."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs
import pytest

import stepscope
import tiny
from conftest import ROOT
from stepscope import exporters
from stepscope.analyses.shared.scopes import scope_ranges
from stepscope.errors import DataError, UsageError
from stepscope.exporters import chrome
from stepscope.io import store
from stepscope.model import schema
from stepscope.model.trace import Meta, Trace, analysis_names
from stepscope.timeline.layout import build
from volume import mostly_deep

# Two host threads, a stream with an annotation beside it, an async range, an instant, memory, counters, and names that want to be more.
EVENTS: list[dict[str, Any]] = [
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "pid": 5, "tid": 5, "ts": 1700000000000.001, "dur": 100,
     "args": {"Ev Idx": 0}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 5, "tid": 5, "ts": 1700000000010.002, "dur": 30.5,
     "args": {"External id": 3, "Input Dims": [[2, 3], [3, 2]], "Input type": ["float", "float"], "note": "a\\b\"c\u00fc"}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": 5, "ts": 1700000000012.003, "dur": 2,
     "args": {"correlation": 9, "External id": 3}},
    {"ph": "X", "cat": "kernel", "name": "../../etc/passwd", "pid": 0, "tid": 7, "ts": 1700000000020.004, "dur": 5.006,
     "args": {"correlation": 9, "External id": 3, "device": 0, "stream": 7}},
    {"ph": "X", "cat": "gpu_user_annotation", "name": "<b>range</b>", "pid": 0, "tid": 7, "ts": 1700000000019.0, "dur": 9},
    {"ph": "X", "cat": "cpu_op", "name": "MmBackward0", "pid": 5, "tid": "pt_autograd", "ts": 1700000000050.0, "dur": 10},
    {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 5, "tid": 5, "ts": 1700000000010.002},
    {"ph": "f", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 5, "tid": "pt_autograd", "ts": 1700000000050.0, "bp": "e"},
    {"ph": "b", "cat": "request", "name": "load", "id": 77, "pid": 5, "tid": 5, "ts": 1700000000030.0},
    {"ph": "e", "cat": "request", "name": "load", "id": 77, "pid": 5, "tid": 5, "ts": 1700000000060.0},
    {"ph": "i", "cat": "note", "name": "now", "pid": 5, "tid": 5, "ts": 1700000000033.0, "s": "t", "args": {"k": 1}},
    {"ph": "i", "name": "[memory]", "pid": 5, "tid": 5, "ts": 1700000000011.0, "s": "t",
     "args": {"Addr": 4096, "Bytes": 512, "Device Type": 1, "Device Id": 0, "Total Allocated": 1536, "Total Reserved": 2048}},
    {"ph": "i", "name": "[memory]", "pid": 5, "tid": "pt_autograd", "ts": 1700000000055.0, "s": "t",
     "args": {"Addr": 4096, "Bytes": -512, "Device Type": 1, "Device Id": 0, "Total Allocated": 1024, "Total Reserved": 2048}},
    {"ph": "i", "name": "[memory]", "pid": 5, "tid": "pt_autograd", "ts": 1700000000055.0, "s": "t",
     "args": {"Addr": 4096, "Bytes": 256, "Device Type": 1, "Device Id": 0, "Total Allocated": 1280, "Total Reserved": 2048}},
    {"ph": "i", "name": "[memory]", "pid": 5, "tid": "pt_autograd", "ts": 1700000000056.0, "s": "t",
     "args": {"Addr": 64, "Bytes": 8, "Device Type": 0, "Device Id": -1}},
    {"ph": "C", "name": "queue depth", "pid": 5, "ts": 1700000000040.0, "args": {"items": 2.5}},
    {"ph": "M", "name": "process_name", "pid": 5, "args": {"name": "python3"}},
    {"ph": "M", "name": "process_labels", "pid": 0, "args": {"labels": "GPU 0"}},
    {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "args": {"name": "stream 7"}},
    {"ph": "M", "name": "thread_sort_index", "pid": 5, "tid": 5, "args": {"sort_index": 5}},
]  # fmt: skip
HEADER = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "numSms": 132}],
    "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
    "record_shapes": 1,
    "baseTimeNanoseconds": 1790857026000000000,
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return opened(tmp_path / "source.json", EVENTS)


def opened(path: Path, events: list[dict[str, Any]], **header: Any) -> Trace:
    path.write_text(json.dumps(HEADER | header | {"traceEvents": events}))
    return stepscope.open(path)


def export(trace: Trace, form: str, out: Path, **options: Any) -> Path:
    exporters.exporter(form).function(trace, out, **options)
    return out


def table(trace: Trace, name: str) -> pl.DataFrame:
    """A table as text and numbers. Lanes that never had a span are numbered by nobody: only the order of the others counts."""
    frame = trace.table(name).with_columns((cs.categorical() | cs.enum()).cast(pl.String)).collect()
    if "track" in frame.columns:
        frame = frame.with_columns(pl.col("track").rank("dense").over("rank"))
    if name == "counters":
        frame = frame.sort("name", "at_ns", maintain_order=True)
    return frame.drop("file") if name == "problems" else frame


def assert_same(one: Trace, other: Trace) -> None:
    for name in schema.TABLES:
        assert table(one, name).to_dicts() == table(other, name).to_dicts(), name
    for name in analysis_names():
        before, after = one.analyse(name), other.analyse(name)
        shared = [column for column in before.columns if column != "track"]
        assert before.select(shared).equals(after.select(shared)), name


@pytest.mark.parametrize("out", ["back.json", "back.json.gz"])
def test_chrome_read_back_gives_the_same_tables_and_analyses(out: str, trace: Trace, tmp_path: Path) -> None:
    back = stepscope.open(export(trace, "chrome", tmp_path / out))
    assert_same(trace, back)
    assert back.meta.ranks == [3] and back.meta.world_size == 8
    assert {key: back.meta.extra[key] for key in ("schemaVersion", "baseTimeNanoseconds", "distributedInfo")} == {
        key: HEADER[key] for key in ("schemaVersion", "baseTimeNanoseconds", "distributedInfo")
    }
    assert back.meta.options == trace.meta.options == {"record_shapes": True, "profile_memory": True}  # memory is in its events


def test_chrome_keeps_the_words_of_the_source(trace: Trace, tmp_path: Path) -> None:
    """Against the source itself, not against what our reader made of it."""
    written = json.loads(export(trace, "chrome", tmp_path / "back.json").read_text())

    def key(event: dict[str, Any]) -> tuple[Any, ...]:
        return event["ph"], event.get("cat"), event["name"], event["pid"], event.get("tid"), event["ts"]

    for phase in "Xi":
        source = sorted((event for event in EVENTS if event["ph"] == phase and event["name"] != "[memory]"), key=str)
        found = sorted((event for event in written["traceEvents"] if event["ph"] == phase and event["name"] != "[memory]"), key=str)
        assert [(key(event), event.get("dur"), event.get("args", {})) for event in found] == [
            (key(event), event.get("dur"), event.get("args", {})) for event in source
        ]
    assert written["deviceProperties"] == HEADER["deviceProperties"]
    names = {(event["name"], event["pid"], event.get("tid")): event["args"] for event in written["traceEvents"] if event["ph"] == "M"}
    assert names["process_name", 5, None] == {"name": "python3"}
    assert names["process_labels", 0, None] == {"labels": "GPU 0"}
    assert names["thread_name", 0, 7] == {"name": "stream 7"}


def test_chrome_draws_arrows_from_launch_to_kernel_and_from_forward_to_backward(trace: Trace, tmp_path: Path) -> None:
    written = json.loads(export(trace, "chrome", tmp_path / "back.json").read_text())["traceEvents"]
    ends = {(event["cat"], event["id"]): event for event in written if event["ph"] == "f"}
    arrows = {(e["cat"], e["ts"], ends[e["cat"], e["id"]]["ts"], ends[e["cat"], e["id"]]["tid"]) for e in written if e["ph"] == "s"}
    assert arrows == {
        ("ac2g", 1700000000012.003, 1700000000020.004, 7),
        ("fwdbwd", 1700000000010.002, 1700000000050.0, "pt_autograd"),
    }


def test_chrome_loses_no_nanosecond_however_large_the_clock(tmp_path: Path) -> None:
    big = 1_790_857_026_123_456_789
    events = "".join(
        f'{{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":{ns // 1000}.{ns % 1000:03d},"dur":0.001}},'
        for ns in range(big, big + 3)
    )
    source = tmp_path / "source.json"
    source.write_text(f'{{"traceEvents": [{events[:-1]}]}}')
    out = export(stepscope.open(source), "chrome", tmp_path / "back.json")
    assert f'"ts":{big // 1000}.789,"dur":0.001' in out.read_text()
    assert stepscope.open(out).spans.collect()["start_ns"].to_list() == [big, big + 1, big + 2]


def test_chrome_writes_times_before_zero(tmp_path: Path) -> None:
    span = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": -1.5, "dur": 2}
    back = stepscope.open(export(opened(tmp_path / "s.json", [span]), "chrome", tmp_path / "back.json"))
    assert back.spans.collect()["start_ns"].to_list() == [-1500]


def test_chrome_marks_steps_that_no_span_of_the_source_marks(tmp_path: Path) -> None:
    trace = tiny.trace(spans="kind name start_ns dur_ns\nop a 0 10", steps="step start_ns end_ns how\n4 0 50 marker\n5 50 100 marker")
    steps = stepscope.open(export(trace, "chrome", tmp_path / "back.json")).steps.select("step", "start_ns", "end_ns").collect()
    assert steps.rows() == [(4, 0, 50), (5, 50, 100)]


def test_chrome_says_what_other_sources_say_in_the_words_of_torch(tmp_path: Path) -> None:
    spans = """
        kind    track  name  start_ns  dur_ns  correlation  shapes     dtypes     flops  bytes  args              category
        op      0      dot   0         50      -            [[2,2]]    ["float"]  16     -      {"hlo":"x,}"}     XLA_Ops
        api     0      go    10        5       4            -          -          -      -      -                 Host
        kernel  1      fuse  20        9       4            -          -          -      64     {"flops":3}       XLA_Ops
    """
    tracks = "track group label kind device\n0 host main thread -\n1 chip s0 stream 0"
    trace = Trace(tiny.trace(spans=spans, tracks=tracks).tables, Meta(format="xplane", framework="jax", ranks=[0]))
    back = stepscope.open(export(trace, "chrome", tmp_path / "back.json"))
    tiny.assert_rows(
        back.spans.with_columns(pl.col("kind", "shapes", "dtypes").cast(pl.String)).collect(),
        """
        kind    name  start_ns  dur_ns  correlation  shapes   dtypes     flops  bytes  flow_in
        op      dot   0         50      -            [[2,2]]  ["float"]  16     -      -
        api     go    10        5       4            -        -          -      -      -
        kernel  fuse  20        9       4            -        -          3      64     1
        """,
    )
    assert back.tracks.sort("track").collect()["label"].to_list() == ["main", "s0"]


def test_chrome_says_what_its_source_lacks(tmp_path: Path) -> None:
    trace = tiny.trace(spans="kind name start_ns dur_ns\nop a 0 10", problems='file where what lost\nf "byte_9" "cut_off" 3')
    written = json.loads(export(trace, "chrome", tmp_path / "back.json").read_text())
    assert written["stepscopeProblems"] == [{"file": "f", "where": "byte 9", "what": "cut off", "lost": 3}]


def test_several_ranks_become_a_folder_of_files_and_open_again(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for rank in (0, 1):
        opened(tmp_path / "in" / f"r{rank}.json", EVENTS, distributedInfo={"rank": rank, "world_size": 2})
    both = stepscope.open(tmp_path / "in")
    with pytest.raises(UsageError, match=r"2 ranks and out\.json is one file"):
        export(both, "chrome", tmp_path / "out.json")
    out = export(both, "chrome", tmp_path / "out")
    assert sorted(file.name for file in out.iterdir()) == ["rank0.json.gz", "rank1.json.gz"]
    assert_same(both, stepscope.open(out))


@pytest.mark.parametrize("name", mostly_deep(["resnet50_full.json.gz", "ddp_gloo_rank0.json.gz"], keep=["ddp_gloo_rank0.json.gz"]))
def test_chrome_of_a_real_trace_read_back_gives_the_same(name: str, shared: Path, tmp_path: Path) -> None:
    trace = stepscope.open(shared / "torch_h200" / name)
    back = stepscope.open(export(trace, "chrome", tmp_path / "back.json.gz"))
    assert_same(trace, back)


def test_chrome_of_a_real_trace_has_every_event_of_its_source(shared: Path, tmp_path: Path) -> None:
    """Counted with the standard library alone, on both sides."""
    source = shared / "torch_h200" / "resnet50_full.json.gz"
    out = export(stepscope.open(source), "chrome", tmp_path / "back.json.gz")
    sides = []
    for file in (source, out):
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
        spans = [event for event in events if event["ph"] in "Xi" and event["name"] != "[memory]"]
        memory = [event for event in events if event["name"] == "[memory]"]
        fields = ("Addr", "Bytes", "Device Id", "Device Type", "Total Allocated", "Total Reserved")
        entries = [[event.get(key) or None for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")] for event in spans]
        entries += [[event["ts"], *(event["args"].get(field) for field in fields)] for event in memory]
        sides.append(sorted(json.dumps(one, sort_keys=True) for one in entries))
    assert len(sides[0]) > 10_000
    assert sides[0] == sides[1]


def test_parquet_is_a_run_folder(trace: Trace, tmp_path: Path) -> None:
    back = stepscope.open(export(trace, "parquet", tmp_path / "run"))
    assert store.sniff(tmp_path / "run")
    assert_same(trace, back)


def test_csv_is_a_file_per_table_with_rows(trace: Trace, tmp_path: Path) -> None:
    out = export(trace, "csv", tmp_path / "out")
    filled = {name for name in schema.TABLES if trace.table(name).collect().height}
    assert {file.name for file in out.iterdir()} == {f"{name}.csv" for name in filled}
    spans = pl.read_csv(out / "spans.csv")
    assert spans["start_ns"].to_list() == trace.spans.collect()["start_ns"].to_list()
    assert "../../etc/passwd" in spans["name"].to_list()


def test_csv_has_the_analyses_when_asked(trace: Trace, tmp_path: Path) -> None:
    out = export(trace, "csv", tmp_path / "out", analyses=True)
    assert pl.read_csv(out / "overlap.csv")["total_ns"].to_list() == [100_000]
    assert {file.stem.removesuffix("_analysis") for file in out.iterdir()} <= {*schema.TABLES, *analysis_names()}


def test_csv_knows_no_nan(tmp_path: Path) -> None:
    trace = tiny.trace(counters="name at_ns value\na 0 nan\nb 1 inf\nc 2 1.5")
    out = export(trace, "csv", tmp_path / "out")
    assert [line.split(",")[3] for line in (out / "counters.csv").read_text().splitlines()] == ["value", "", "", "1.5"]


def test_chrome_is_valid_json_whatever_a_counter_says(tmp_path: Path) -> None:
    trace = tiny.trace(spans="kind name start_ns dur_ns\nop a 0 10", counters='name at_ns value\n"a_b" 0 nan\nc 1 -inf\n"d_e_f" 2 1e300')
    text = export(trace, "chrome", tmp_path / "back.json").read_text()
    found = [event for event in json.loads(text, parse_constant=pytest.fail)["traceEvents"] if event["ph"] == "C"]
    assert [(event["name"], event["args"]) for event in found] == [("a", {"b": None}), ("c", {"value": None}), ("d e", {"f": 1e300})]


@pytest.mark.parametrize("form", exporters.names())
def test_nothing_is_replaced_unless_told(form: str, trace: Trace, tmp_path: Path) -> None:
    out = export(trace, form, tmp_path / "out")
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    with pytest.raises(UsageError, match="exists"):
        export(trace, form, out)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before
    export(trace, form, out, overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "out", "source.json"}


@pytest.mark.parametrize("form", exporters.names())
def test_a_folder_of_other_things_is_never_replaced(form: str, trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="not replaced"):
        export(trace, form, tmp_path / "home", overwrite=True)
    assert (tmp_path / "home" / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("form", exporters.names())
def test_a_failed_export_leaves_nothing(form: str, trace: Trace, tmp_path: Path) -> None:
    """A limit on the size of files is as good as a full disk: writing fails."""
    many = pl.concat([trace.spans.collect()] * 50)
    spans = many.with_columns(pl.int_range(pl.len()).cast(many.schema["span"]).alias("span"))
    run = export(Trace({**trace.tables, "spans": spans}, trace.meta), "parquet", tmp_path / "run")
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
        "from stepscope.cli import main\n"
        f"sys.exit(main(['export', {str(run)!r}, '--to', {form!r}, '-o', {str(tmp_path / 'out')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and str(tmp_path / "out") in done.stderr and "could not be written" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "run", "source.json"}


@pytest.mark.parametrize("name", ["/dev/null", "pipe"])
def test_what_is_no_file_is_not_written_over(name: str, trace: Trace, tmp_path: Path) -> None:
    import os

    out = Path(name) if name.startswith("/") else tmp_path / name
    if name == "pipe":
        os.mkfifo(out)
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        export(trace, "chrome", out, overwrite=True)


def test_a_place_that_cannot_be_written_is_named(trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((DataError, OSError)) as caught:
        export(trace, "chrome", tmp_path / "file" / "out.json")
    assert str(tmp_path / "file") in str(caught.value)


def test_every_exporter_says_what_comes_out() -> None:
    assert {"chrome", "csv", "parquet", "perfetto"} <= set(exporters.names())
    for name in exporters.names():
        assert exporters.exporter(name).about


def test_levels_of_scopes_get_lanes_of_their_own_where_they_are_asked_for(tmp_path: Path) -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name  start_ns  dur_ns  scope
            7      kernel  a     1000      2000    net/one
            7      kernel  b     4000      1000    net/one
            7      kernel  c     6000      1000    net/two
            7      kernel  d     8000      2000    -
            7      kernel  e     11000     1000    net/two
            7      kernel  f     13000     1000    net/two
        """,
        tracks="""
            track  kind    label     device  group
            7      stream  stream7   0       gpu0
        """,
        steps="""
            step  start_ns  end_ns
            0     0         12000
            1     12500     20000
        """,
    )
    chrome.export(trace, tmp_path / "plain.json")
    assert '"scopes' not in (tmp_path / "plain.json").read_text()
    chrome.export(trace, tmp_path / "scopes.json", scopes=3)
    events = json.loads((tmp_path / "scopes.json").read_text())["traceEvents"]
    found = [(one["tid"], one["name"], one["ts"], one["dur"]) for one in events if one.get("cat") == "scopes"]
    # A scope ends with its last piece of work before another's, and with its step.
    level_1 = [(1, "net", 1.0, 6.0), (1, "net", 11.0, 1.0), (1, "net", 13.0, 1.0)]
    level_2 = [(2, "net/one", 1.0, 4.0), (2, "net/two", 6.0, 1.0), (2, "net/two", 11.0, 1.0), (2, "net/two", 13.0, 1.0)]
    assert found == [*level_1, *level_2]
    names = {(one["pid"], one.get("tid")): one["args"]["name"] for one in events if one["ph"] == "M" and "scopes" in str(one["pid"])}
    assert names == {("scopes of gpu0", None): "scopes of gpu0", ("scopes of gpu0", 1): "level 1", ("scopes of gpu0", 2): "level 2"}


def test_the_scopes_of_an_exported_trace_are_those_of_the_timeline(tmp_path: Path) -> None:
    trace = stepscope.open(ROOT / "tests" / "samples" / "run" / "stepscope-0.1.0" / "resnet50_h200")
    timeline = build(trace)
    (track,) = [track for track in timeline.tracks if track.kind == "scope"]
    found = scope_ranges(trace, track.rows + 1)
    assert found["level"].max() == track.rows
    events = timeline.pyramid.spans
    for row in range(track.rows):
        own = slice(*(int(edge) for edge in events.offsets[track.first + row : track.first + row + 2]))
        part = found.filter(pl.col("level") == row + 1).sort("start_ns")
        assert (events.start[own] + timeline.origin).tolist() == part["start_ns"].to_list()
        assert events.dur[own].tolist() == (part["end_ns"] - part["start_ns"]).to_list()
        assert timeline.labels["name"].gather(events.label[own]).to_list() == part["scope"].to_list()


# A limit on the size of files is as good as a full disk: writing fails in the middle.
FULL = """
import resource, signal, sys
from stepscope.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("words", [["report"], *(["export", "--to", form] for form in exporters.names())], ids=lambda words: words[-1])
def test_a_full_disk_leaves_no_part_of_a_file_and_keeps_what_was_there(words: list[str], tmp_path: Path) -> None:
    ending = {"report": ".html", "chrome": ".json", "perfetto": ".pftrace", "speedscope": ".json", "msprof_db": ".db"}.get(words[-1], "")
    run, out = tmp_path / "run", tmp_path / "out" / f"made{ending}"
    store.write(stepscope.open(ROOT / "tests" / "samples" / "chrome" / "torch-2.13.0" / "cpu_training.json.gz"), run)
    out.parent.mkdir()
    if words == ["report"]:
        out.write_text("an earlier one")
        words = ["report", "--force"]
    before = list(out.parent.iterdir())
    done = subprocess.run([sys.executable, "-c", FULL, *words, str(run), "-o", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("stepscope: ")
    assert list(out.parent.iterdir()) == before
    assert not before or out.read_text() == "an earlier one"
