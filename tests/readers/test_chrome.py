"""The Chrome reader: the forms of the format, what Kineto means by it, and that nothing changes on the way in."""

import gzip
import json
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stepscope
import tiny
from stepscope.errors import DataError, UsageError
from stepscope.readers.chrome import compression
from stepscope.readers.chrome import text as texts

TRACELENS = Path(__file__).parents[3] / "shared" / "data" / "tracelens"


def write(path: Path, events: list[dict[str, Any]], **header: Any) -> Path:
    path.write_text(json.dumps(header | {"traceEvents": events}))
    return path


def x(name: str, ts: float, dur: float, cat: Any = "cpu_op", *, tid: Any = 1, pid: Any = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def opened(path: Path, **options: Any) -> stepscope.Trace:
    return stepscope.open(path, cache=False, **options)


@pytest.mark.parametrize("indent", [None, 0, 2, 4])
@pytest.mark.parametrize("form", ["object", "array", "gzip", "bom"])
def test_every_form_of_the_format_reads_the_same(tmp_path: Path, indent: int | None, form: str) -> None:
    events = [x("aten::mm", 10.001, 5.5), x("aten::add", 11, 2), x('quote " brace }, { "ph": ', 20, 1)]
    document: Any = events if form == "array" else {"schemaVersion": 1, "traceEvents": events, "traceName": "a"}
    text = json.dumps(document, indent=indent).encode()
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(text) if form == "gzip" else b"\xef\xbb\xbf" + text if form == "bom" else text)
    spans = opened(path).spans.collect()
    tiny.assert_rows(
        spans.head(2),
        """
        name       kind  start_ns  dur_ns  self_ns  depth  parent
        aten::mm   op    10001     5500    3500     0      -
        aten::add  op    11000     2000    2000     1      0
        """,
    )
    assert spans["name"].to_list()[2] == 'quote " brace }, { "ph": '


@pytest.mark.skipif(compression.zstd_decoder() is None, reason="needs a decoder of zstd")
def test_a_zstd_file_reads_like_a_plain_one_and_a_cut_one_names_its_damage(tmp_path: Path) -> None:
    decoder: Any = compression.zstd_decoder()
    plain = write(tmp_path / "plain.json", [x(f"op {row}", row, 0.5) for row in range(5000)])
    packed = tmp_path / "trace.json.zst"
    packed.write_bytes(decoder.compress(plain.read_bytes()))
    assert opened(packed).spans.collect().equals(opened(plain).spans.collect())
    packed.write_bytes(packed.read_bytes()[:-200])
    with pytest.raises(DataError, match="zstd stream breaks off"):
        opened(packed)
    assert opened(packed, partial=True).spans.collect().height > 0


def test_times_are_exact_whatever_their_form(tmp_path: Path) -> None:
    times = [
        "1",
        "1.5",
        '"1.5"',
        "1712195495519689.047",
        '"1712195495519689.047"',
        "1.5e3",
        "8796093022207.999",
        "1682725898236567",
        "-3.001",
    ]
    events = ",".join(f'{{"ph":"X","name":"a","pid":1,"tid":{i},"ts":{ts},"dur":{ts.strip("-")}}}' for i, ts in enumerate(times))
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents":[{events}]}}')
    expected = [int(Decimal(ts.strip('"')) * 1000) for ts in times]
    spans = opened(path).spans.collect()
    assert spans["start_ns"].to_list() == expected
    assert spans["dur_ns"].to_list() == [abs(value) for value in expected]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.decimals(min_value=0, max_value=2 * 10**15, places=3), min_size=1, max_size=8), st.booleans())
def test_times_with_three_decimals_never_change(tmp_path_factory: pytest.TempPathFactory, times: list[Decimal], quoted: bool) -> None:
    mark = '"' if quoted else ""
    events = ",".join(f'{{"ph":"X","name":"a","pid":1,"tid":1,"ts":{mark}{ts:f}{mark},"dur":0}}' for ts in times)
    path = tmp_path_factory.mktemp("t") / "t.json"
    path.write_text(f"[{events}]")
    assert opened(path).spans.collect()["start_ns"].to_list() == [int(ts * 1000) for ts in times]


def test_begin_and_end_events_make_spans(tmp_path: Path) -> None:
    def e(ph: str, name: str, ts: float, **more: Any) -> dict[str, Any]:
        return {"ph": ph, "name": name, "cat": "c", "pid": 1, "tid": 1, "ts": ts, **more}

    events = [e("B", "outer", 0), e("B", "inner", 2), e("E", "", 5), e("E", "", 9), e("E", "", 9.5), e("B", "left", 10)]
    events += [
        e("b", "async", 3, id=7),
        e("e", "async", 8, id=7),
        e("S", "old", 4, id="0x1"),
        e("F", "old", 6, id="0x1"),
        e("i", "now", 12),
    ]
    trace = opened(write(tmp_path / "t.json", events))
    tiny.assert_rows(
        trace.spans.sort("start_ns").collect(),
        """
        name   kind     start_ns  dur_ns  depth
        outer  other    0         9000    0
        inner  other    2000      3000    1
        async  other    3000      5000    0
        old    other    4000      2000    1
        left   other    10000     0       0
        now    instant  12000     0       0
        """,
    )
    assert sorted(trace.problems.collect()["what"].to_list()) == [
        "1 end of ranges without a begin",
        "1 range has no end: shown up to the last event",
        "no step markers: the whole trace is one step",
    ]


def test_counters_become_samples(tmp_path: Path) -> None:
    events = [{"ph": "C", "name": "queue", "pid": 1, "ts": 5, "args": {"size": 3, "limit": 8.5, "word": "x"}}, x("a", 1, 1)]
    trace = opened(write(tmp_path / "t.json", events))
    tiny.assert_rows(
        trace.counters.with_columns(pl.col("name").cast(pl.String).str.replace(" ", ".")).collect(),
        """
        name         at_ns  value
        queue.size   5000   3.0
        queue.limit  5000   8.5
        """,
    )
    assert '1 value of a counter that is not a number, for example queue word: "x"' in trace.problems.collect()["what"].to_list()


def gpu_step() -> list[dict[str, Any]]:
    """One step: a linear layer forward and backward, its launches and kernels, a gloo transfer."""
    return [
        x("ProfilerStep#7", 0, 100, "user_annotation"),
        x("enumerate(DataLoader)#_It.__next__", 1, 4, "user_annotation"),
        x("nn.Module: Net_0", 8, 22, "python_function"),
        x("nn.Module: Linear_1", 9, 20, "python_function"),
        x("aten::linear", 10, 18, **{"External id": 1, "Input Dims": [[4, 8], [8, 8]], "Input type": ["float", "float"]}),
        x("aten::addmm", 12, 14, **{"External id": 2}),
        x("cudaLaunchKernel", 15, 3, "cuda_runtime", **{"External id": 2, "correlation": 50}),
        x("sgemm", 40, 20, "kernel", tid=7, pid=0, **{"External id": 2, "correlation": 50, "stream": 7}),
        x("AddmmBackward0", 50, 30, tid=2, **{"External id": 3}),
        x("aten::mm", 55, 10, tid=2, **{"External id": 4}),
        x("cudaLaunchKernel", 58, 3, "cuda_runtime", tid=2, **{"External id": 4, "correlation": 51}),
        x("sgemm_nt", 105, 20, "kernel", tid=7, pid=0, **{"External id": 4, "correlation": 51, "stream": 7}),
        x("gloo:all_reduce", 60, 15, "user_annotation", tid=3),
        x("ncclDevKernel_AllReduce_Sum_f32", 126, 5, "kernel", tid=8, pid=0, correlation=52),
        x("cudaDeviceSynchronize", 90, 9, "cuda_runtime", correlation=53),
        x("Memcpy HtoD", 6, 1, "gpu_memcpy", tid=7, pid=0, bytes=4096, correlation=54),
        {"ph": "s", "id": 9, "pid": 1, "tid": 1, "ts": 10, "cat": "fwdbwd", "name": "fwdbwd"},
        {"ph": "f", "id": 9, "pid": 1, "tid": 2, "ts": 50, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"},
    ]


def test_what_kineto_means_is_understood(tmp_path: Path) -> None:
    header = {"schemaVersion": 1, "distributedInfo": {"rank": 3, "world_size": 8}, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}]}
    trace = opened(write(tmp_path / "t.json", gpu_step(), **header))
    assert (trace.meta.ranks, trace.meta.world_size, trace.meta.framework) == ([3], 8, "pytorch")
    assert trace.devices.collect()["name"].to_list() == ["NVIDIA H200"]
    tiny.assert_rows(trace.steps.collect(), "rank step start_ns end_ns how\n3 7 0 100000 marker")
    tiny.assert_rows(
        trace.spans.select("span", "kind", "step", "scope", "op_type", "op", "flow_in", "bytes").collect(),
        """
        span  kind           step  scope           op_type                                              op  flow_in  bytes
        0     step           7     -               -                                                    -   -        -
        1     data           7     -               -                                                    -   -        -
        2     scope          7     Net_0           -                                                    -   -        -
        3     scope          7     Net_0/Linear_1  -                                                    -   -        -
        4     op             7     Net_0/Linear_1  aten::linear                                         -   -        -
        5     op             7     Net_0/Linear_1  aten::addmm                                          -   -        -
        6     api            7     Net_0/Linear_1  -                                                    -   -        -
        7     kernel         7     Net_0/Linear_1  aten::addmm                                          5   6        -
        8     op             7     Net_0/Linear_1  AddmmBackward0                                       -   4        -
        9     op             7     Net_0/Linear_1  aten::mm                                             -   -        -
        10    api            7     -               -                                                    -   -        -
        11    kernel         7     Net_0/Linear_1  aten::mm                                             9   10       -
        12    communication  7     -               -                                                    -   -        -
        13    communication  -     -               -                                                    -   -        -
        14    sync           7     -               -                                                    -   -        -
        15    copy           7     -               -                                                    -   -        4096
        """,
    )


def test_what_has_no_name_is_called_by_its_number(tmp_path: Path) -> None:
    named = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 3, "args": {"name": "loader"}}
    trace = opened(write(tmp_path / "t.json", [*gpu_step(), x("f", 0, 1, tid="main"), x("f", 0, 1, tid=-9), named]))
    labels = dict(trace.tracks.filter(pl.col("kind") != "annotation").select("tid", "label").collect().iter_rows())
    assert labels == {"1": "thread 1", "2": "thread 2", "7": "stream 7", "8": "stream 8", "main": "main", "-9": "thread -9"}
    assert "loader annotations" in trace.tracks.collect()["label"].to_list()


def test_steps_can_be_named_or_are_one_whole(tmp_path: Path) -> None:
    events = [x("train epoch", 0, 9, "user_annotation"), x("train epoch", 10, 9, "user_annotation"), x("aten::mm", 2, 3)]
    path = write(tmp_path / "t.json", events)
    whole = opened(path)
    tiny.assert_rows(whole.steps.collect(), "step start_ns end_ns how\n0 0 19000 whole")
    assert "no step markers" in whole.problems.collect()["what"][0]
    given = opened(path, step_name="train*")
    tiny.assert_rows(given.steps.collect(), "step start_ns end_ns how\n0 0 9000 given\n1 10000 19000 given")
    assert given.problems.collect().height == 0
    with pytest.raises(UsageError, match=r"nothing in the trace is named 'nothing'; nearest: 'annotation:train epoch'"):
        opened(path, step_name="nothing")


def test_step_like_annotations_are_taken_and_said_so(tmp_path: Path) -> None:
    events = [x("## step 11 ##", 0, 9, "user_annotation"), x("## step 12 ##", 10, 9, "user_annotation"), x("aten::mm", 2, 3)]
    trace = opened(write(tmp_path / "t.json", events))
    tiny.assert_rows(trace.steps.collect(), "step start_ns end_ns how\n11 0 9000 inferred\n12 10000 19000 inferred")
    assert "'## step N ##' annotation is taken as a step" in trace.problems.collect()["what"][0]


def test_memory_events_become_blocks_and_curves(tmp_path: Path) -> None:
    def memory(ts: float, address: int, size: int, total: int) -> dict[str, Any]:
        args = {"Addr": address, "Bytes": size, "Total Allocated": total, "Total Reserved": 900, "Device Id": 0, "Device Type": 1}
        return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args}

    top = 2**64 - 512
    events = [x("aten::mm", 0, 10), memory(2, 64, 100, 100), memory(5, top, 50, 150), memory(12, 64, -100, 50)]
    events += [memory(13, 32, -8, 42), memory(14, 64, 70, 112)]
    trace = opened(write(tmp_path / "t.json", events))
    tiny.assert_rows(
        trace.allocations.with_columns(pl.col("device").cast(pl.String).str.replace(" ", "")).collect(),
        f"""
        device  address  bytes  alloc_ns  free_ns  op
        gpu0    64       100    2000      12000    aten::mm
        gpu0    {top}    50     5000      -        aten::mm
        gpu0    32       8      -         13000    -
        gpu0    64       70     14000     -        -
        """,
    )
    allocated = trace.counters.filter(pl.col("name") == "allocated gpu 0").collect()
    assert allocated["value"].to_list() == [100, 150, 50, 42, 112]


@pytest.fixture(scope="module", params=["torch_h200", "torch_public"])
def real_traces(request: pytest.FixtureRequest, shared: Path) -> list[Path]:
    return sorted((shared / request.param).rglob("*.json.gz"))


def test_totals_equal_sums_straight_from_the_json(real_traces: list[Path]) -> None:
    for path in real_traces:
        events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
        by_category: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        by_name: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        for event in events:
            if event["ph"] == "X":
                for total in (by_category[event["cat"]], by_name[event["cat"], event["name"]]):
                    total[0] += 1
                    total[1] += int(Decimal(event["dur"]) * 1000)
        trace = opened(path)
        totals = pl.len(), pl.col("dur_ns").sum()
        spans = trace.spans.filter(pl.col("kind") != "instant").with_columns(pl.col("category", "name").cast(pl.String))
        found = {row[0]: list(row[1:]) for row in spans.group_by("category").agg(*totals).collect().iter_rows()}
        assert found == by_category, path
        named = {row[:2]: list(row[2:]) for row in spans.group_by("category", "name").agg(*totals).collect().iter_rows()}
        assert named == by_name, path
        starts = sorted(int(Decimal(event["ts"]) * 1000) for event in events if event["ph"] == "X")
        assert spans.select("start_ns").sort("start_ns").collect()["start_ns"].to_list() == starts
        assert trace.problems.filter(pl.col("lost") > 0).collect().height == 0


def test_every_kernel_finds_its_launch_and_operator(real_traces: list[Path]) -> None:
    for path in real_traces:
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        calls = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
        operators = [e for e in events if e.get("cat") == "cpu_op"]
        numbered = {e["args"].get("External id"): e["name"] for e in reversed(operators)}

        kernels = [(e["name"], e["args"]) for e in events if e.get("cat") == "kernel"]
        expected: Counter[tuple[str, str | None, bool]] = Counter()
        for name, args in kernels:
            operator = numbered.get(args.get("External id"))
            if args.get("External id") == args["correlation"]:  # then it numbers no operator: the innermost around the launch counts
                call = calls[args["correlation"]]
                around = [e for e in operators if e["tid"] == call["tid"] and e["ts"] <= call["ts"] < e["ts"] + e["dur"]]
                operator = max(enumerate(around), key=lambda e: (e[1]["ts"], -e[1]["dur"], e[0]))[1]["name"] if around else None
            expected[name, operator, args["correlation"] in calls] += 1
        spans = opened(path).spans.filter(pl.col("category") == "kernel")
        found = Counter(spans.select("name", "op_type", pl.col("flow_in").is_not_null()).collect().iter_rows())
        assert found == expected, path


def test_large_files_are_split_where_events_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [x(f'name {i} }},{{"ph":"X" \\ "', i, 1, note=[{"ph": "no"}, {"name": "no"}], text="\\" * (i % 4)) for i in range(3000)]
    path = write(tmp_path / "t.json", events, displayTimeUnit="ms")
    alone = opened(path).spans.collect()
    for exact in (False, True):
        monkeypatch.setattr(texts, "PIECE", 20_000)
        monkeypatch.setattr(texts, "_boundary", texts._exact_boundary if exact else texts._boundary)
        shared_out = opened(path).spans.collect()
        assert shared_out.equals(alone)
    assert alone["name"].to_list() == [event["name"] for event in events]


def test_a_file_cut_off_is_refused_or_read_up_to_the_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [x("a", i, 1) for i in range(10)])
    path.write_bytes(path.read_bytes()[:-150])
    with pytest.raises(DataError, match=r"t\.json: byte \d+: the file is cut off after event 8; --partial reads the whole events"):
        opened(path)
    trace = opened(path, partial=True)
    assert trace.spans.collect().height == 8
    tiny.assert_rows(trace.problems.filter(pl.col("lost") > 0).collect(), "lost\n1")


def test_a_gzip_cut_off_is_refused_or_read_up_to_the_cut(tmp_path: Path) -> None:
    whole = json.dumps({"traceEvents": [x(f"name {i * 7919 % 1000}", i, 1) for i in range(2000)]}).encode()
    path = tmp_path / "t.json.gz"
    packed = gzip.compress(whole)
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match="gzip stream breaks off"):
        opened(path)
    trace = opened(path, partial=True)
    assert 500 < trace.spans.collect().height < 1999
    assert any("gzip" in what for what in trace.problems.collect()["what"])


def test_a_bare_array_may_lack_its_closing_bracket(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("[" + ",\n".join(json.dumps(x("a", i, 1)) for i in range(3)) + ",\n")
    trace = opened(path)
    assert trace.spans.collect().height == 3
    assert "the array of events has no closing bracket" in trace.problems.collect()["what"].to_list()


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        ({"dur": -1}, '1 event of negative duration, for example "dur": -1'),
        ({"ts": None}, '1 event without a usable time, for example "ts": null'),
        ({"ts": float("nan")}, '1 event without a usable time, for example "ts": null'),
        ({"ts": 1e300}, '1 event without a usable time, for example "ts": 1e300'),
        ({"ts": "yesterday"}, '1 event without a usable time, for example "ts": "yesterday"'),
        ({"dur": None}, '1 complete event without a usable duration, for example "dur": null'),
    ],
)
def test_an_event_that_cannot_be_is_left_out_and_counted(tmp_path: Path, event: dict[str, Any], complaint: str) -> None:
    path = write(tmp_path / "t.json", [x("a", 0, 1), x("bad", 2, 1) | event, x("c", 4, 1)])
    for partial in (False, True):
        trace = opened(path, partial=partial)
        assert trace.spans.collect()["name"].to_list() == ["a", "c"]
        lost = trace.problems.filter(pl.col("lost") > 0).select("where", "what", "lost").collect()
        assert lost.rows() == [("event 1", complaint, 1)]
    with pytest.raises(DataError, match="the trace holds no events: 1 "):  # nothing is left
        opened(write(tmp_path / "alone.json", [x("bad", 2, 1) | event]))


def test_odd_but_readable_events_are_kept(tmp_path: Path) -> None:
    events = [x("a", 0, 1), x("b", 1, 1, correlation="text", stream=1.5), x(5, 2, 1), x("d", 3, 1, pid=1.5, tid=None)]  # type: ignore[arg-type]
    trace = opened(write(tmp_path / "t.json", events))
    assert trace.spans.collect()["name"].to_list() == ["a", "b", "5", "d"]
    path = tmp_path / "nan.json"
    path.write_text('[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1,"args":{"bandwidth":inf,"b":NaN}},]')
    spans = opened(path).spans.collect()
    assert json.loads(spans["args"][0]) == {"bandwidth": None, "b": None}


def test_what_cannot_be_read_even_in_part_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    deep = "[" * 100_000 + "]" * 100_000
    path.write_text('{"traceEvents": [' + json.dumps(x("a", 0, 1)) + ', {"ph": "X", "ts": 1, "dur": 1, "args": {"a": ' + deep + "}}]}")
    for partial in (False, True):
        with pytest.raises(DataError, match="nested too deeply"):
            opened(path, partial=partial)


def test_the_same_shapes_are_one_text_however_the_file_is_laid_out(tmp_path: Path) -> None:
    """PyTorch writes `[[8, 3], []]`; tools that format JSON write a line for each number, or no spaces at all."""
    args = {"Input Dims": [[8, 3], []], "Input type": ["long int", "std::map<a,b>", ""]}
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 1, "args": args}]
    found = set()
    layouts: tuple[dict[str, Any], ...] = ({}, {"indent": 4}, {"indent": "\t"}, {"separators": (",", ":")})
    for number, layout in enumerate(layouts):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps({"traceEvents": events, "schemaVersion": 1}, **layout))
        found |= set(stepscope.open(file, cache=False).spans.select(pl.col("shapes", "dtypes").cast(pl.String)).collect().rows())
    assert found == {("[[8, 3], []]", '["long int", "std::map<a,b>", ""]')}


@pytest.mark.skipif(not TRACELENS.is_dir(), reason="no ../shared/data/tracelens")
def test_shapes_of_one_model_on_two_chips_are_written_alike() -> None:
    """Both files are indented; 151,936 words of 1,024 numbers are looked up for 16 texts of 559."""
    for chip in ("h100", "mi300"):
        trace = stepscope.open(next((TRACELENS / chip).glob("Qwen*.json.gz")), cache=False)
        rows = trace.spans.filter(pl.col("shapes").is_not_null()).select(pl.col("name", "shapes").cast(pl.String)).collect()
        assert rows.filter(pl.col("name") == "aten::embedding")["shapes"][0] == "[[151936, 1024], [16, 559], [], [], []]"
        assert not rows["shapes"].str.contains(r"[\n\r\t]|,[^ ]").any()


def test_steps_that_only_the_gpu_has_last_until_the_next_one_starts(shared: Path, tmp_path: Path) -> None:
    """Kineto draws ProfilerStep on the GPU from the first to the last kernel of one thread: 27 and 41 of 63 and 79 ms."""
    path = shared / "torch_h200" / "resnet50_full.json.gz"
    if not path.exists():
        pytest.skip("no H200 trace")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    drawn = [event for event in events if event.get("cat") == "gpu_user_annotation" and event["name"].startswith("ProfilerStep#")]
    first, second = sorted((float(event["ts"]), float(event["dur"])) for event in drawn)
    trace = opened(write(tmp_path / "trace.json", [event for event in events if event.get("cat") != "user_annotation"]))
    one, two = trace.steps.select("start_ns", "end_ns", "how").sort("start_ns").collect().rows()
    assert (one[1] - one[0]) / 1000 == pytest.approx(second[0] - first[0], abs=0.01) and one[2] == "device"
    last = max(float(event["ts"]) + float(event["dur"]) for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"))
    assert (two[1] - two[0]) / 1000 == pytest.approx(last - second[0], abs=0.01)
    assert "from its first device work to that of the next step" in " ".join(trace.verdict(topic="overview")["text"])
    # The steps do not divide the time of the host.
    assert "Stages are unknown" in trace.verdict(topic="steps")["text"][0]


@pytest.mark.parametrize("part", [0.4, 0.5, 0.8, 0.98])
def test_a_device_is_not_called_idle_where_the_end_of_the_file_is_missing(part: float, shared: Path, tmp_path: Path) -> None:
    """The GPU computes for 64 % of each step. With half of the file, "operators run for 2.8 % of the step on the CPU"."""
    path = shared / "torch_h200" / "gpt2_full.json.gz"
    if not path.exists():
        pytest.skip("no H200 trace")
    content = path.read_bytes()
    cut = tmp_path / path.name
    cut.write_bytes(content[: int(part * len(content))])
    trace = stepscope.open(cut, cache=False, partial=True)
    assert trace.overview().select("device_data", "compute_share", "idle_share").row(0) == ("none", None, None)
    assert "kernels are not recorded, so busy and idle time are unknown" in trace.verdict(topic="overview")["text"][0]
