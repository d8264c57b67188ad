import gzip
import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny
from stepscope.errors import DataError, UsageError
from stepscope.model.trace import Trace, complete

SAMPLE = Path(__file__).parent.parent / "samples" / "chrome" / "torch-2.11" / "h200_modules.json.gz"

# Two threads. main calls f twice, f calls g and itself; a kernel on a stream is not the host's.
SPANS = """
    kind    track  name  start_ns  dur_ns
    python  0      main  0         100
    python  0      f     10        30
    op      0      g     15        5
    python  0      f     20        10
    op      0      g     22        4
    python  0      f     50        20
    op      1      g     0         7
    kernel  9      mm    0         1000
    instant 0      mark  3         0
"""
TRACKS = """
    track  kind
    0      thread
    1      thread
    9      stream
"""


def test_calls_of_one_path_are_one_row_and_self_times_add_up_to_the_outermost_calls() -> None:
    trace = tiny.trace(spans=SPANS, tracks=TRACKS)
    # All of the host: 100 + 7.
    tiny.assert_rows(
        trace.hot_paths().select("path", "depth", "kind", "name", "calls", "total_ns", "self_ns", "share"),
        """
        path        depth  kind    name  calls  total_ns  self_ns  share
        main        0      python  main  1      100       50       0.934579
        main;f      1      python  f     2      50        35       0.46729
        g           0      op      g     1      7         7        0.065421
        main;f;f    2      python  f     1      10        6        0.093458
        main;f;g    2      op      g     1      5         5        0.046729
        main;f;f;g  3      op      g     1      4         4        0.037383
        """,
    )
    assert trace.hot_paths()["self_ns"].sum() == 107
    assert trace.hot_paths()["self_share"].sum() == pytest.approx(1)


def test_a_path_names_its_parent() -> None:
    rows = {row["node"]: row for row in tiny.trace(spans=SPANS, tracks=TRACKS).hot_paths().iter_rows(named=True)}
    for row in rows.values():
        above = rows.get(row["parent"])
        assert row["path"] == (row["name"] if above is None else f"{above['path']};{row['name']}")


def test_paths_below_a_root_start_at_its_outermost_calls() -> None:
    trace = tiny.trace(spans=SPANS, tracks=TRACKS)
    tiny.assert_rows(
        trace.hot_paths(root="f"),
        """
        path   depth  calls  total_ns  self_ns  share
        f      0      2      50        35       1.0
        f;f    1      1      10        6        0.2
        f;g    1      1      5         5        0.1
        f;f;g  2      1      4         4        0.08
        """,
    )
    assert trace.hot_paths(root="nothing").height == 0


def test_paths_of_a_small_share_are_left_out_on_request() -> None:
    trace = tiny.trace(spans=SPANS, tracks=TRACKS)
    assert trace.hot_paths(min_share=0.05)["path"].to_list() == ["main", "main;f", "g", "main;f;f"]


def test_ranks_have_paths_of_their_own() -> None:
    trace = tiny.trace(
        spans="""
            rank  span  kind  name  start_ns  dur_ns  parent  depth  self_ns
            0     0     op    a     0         10      -       0      6
            0     1     op    b     2         4       0       1      4
            1     0     op    b     0         10      -       0      6
            1     1     op    b     2         4       0       1      4
        """
    )
    tiny.assert_rows(
        trace.hot_paths(),
        """
        rank  node  parent  path  total_ns  share
        0     0     -       a     10        1.0
        0     1     0       a;b   4         0.4
        1     0     -       b     10        1.0
        1     1     0       b;b   4         0.4
        """,
    )


def test_threads_without_known_calls_count_only_if_there_are_no_others() -> None:
    unknown = "kind track name start_ns dur_ns\n other 5 x 0 9"
    assert tiny.trace(spans=unknown).hot_paths()["path"].to_list() == ["x"]
    assert tiny.trace(spans=unknown + "\n op 6 y 0 1").hot_paths()["path"].to_list() == ["y"]


def test_a_trace_without_host_spans_has_no_paths() -> None:
    assert tiny.trace().hot_paths().height == 0
    assert tiny.trace(spans="kind track name start_ns dur_ns\n kernel 0 mm 0 10").hot_paths().height == 0


def test_nesting_too_deep_for_any_program_is_refused() -> None:
    spans = pl.DataFrame({"start_ns": range(10_001), "dur_ns": range(30_000, 19_999, -1)})
    trace = Trace({"spans": complete(spans.with_columns(rank=0, track=0, name=pl.lit("f"), kind=pl.lit("op")))})
    with pytest.raises(DataError, match=r"10,001 deep"):
        trace.hot_paths()


def test_paths_that_would_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepscope.analyses.host.hot_paths._MOST_TEXT", 30)
    trace = tiny.trace(spans=SPANS, tracks=TRACKS)
    with pytest.raises(UsageError, match="min_share"):
        trace.hot_paths()
    assert trace.hot_paths(min_share=0.05).height == 4


def test_paths_of_a_real_recording_are_those_of_a_walk_over_its_events() -> None:
    threads: dict[tuple[object, object], list[tuple[int, int, str]]] = {}
    for event in json.loads(gzip.decompress(SAMPLE.read_bytes()))["traceEvents"]:
        if event.get("cat") in ("python_function", "cpu_op", "cuda_runtime", "cuda_driver") and event["ph"] == "X":
            start = round(event["ts"] * 1000)
            threads.setdefault((event["pid"], event["tid"]), []).append((start, -start - round(event["dur"] * 1000), event["name"]))
    total: Counter[str] = Counter()
    for events in threads.values():
        stack: list[tuple[int, str]] = []
        for start, minus_end, name in sorted(events, key=lambda event: event[:2]):
            while stack and stack[-1][0] <= start:
                stack.pop()
            stack.append((-minus_end, name))
            total[";".join(one for _, one in stack)] += -minus_end - start
    got = stepscope.open(SAMPLE).hot_paths()
    assert dict(got.select("path", "total_ns").iter_rows()) == dict(total)
    assert got["self_ns"].sum() == sum(time for path, time in total.items() if ";" not in path)
    assert got.filter(pl.col("kind") == "python").height > 100


def test_a_path_that_is_kept_keeps_those_that_lead_to_it() -> None:
    """The outermost call has no length, as where a source has only sums: what is below it has more time than the whole."""
    spans = """
        span  parent  depth  kind  track  name   start_ns  dur_ns  self_ns
        0     -       0      op    0      outer  0         0       0
        1     0       1      op    0      inner  0         50      50
        2     0       1      op    0      small  0         0       0
    """
    trace = tiny.trace(spans=spans, tracks="track  kind\n0  thread")
    assert sorted(trace.hot_paths(min_share=1.0)["path"]) == ["outer", "outer;inner"]
    assert sorted(trace.hot_paths()["path"]) == ["outer", "outer;inner", "outer;small"]


def test_a_call_longer_than_its_parent_has_a_share_of_at_most_one_and_keeps_its_path() -> None:
    spans = """
    kind  track  name   start_ns  dur_ns
    api   0      first  0         10
    api   0      next   8         30
    """
    trace = tiny.trace(spans=spans, tracks="track  kind\n0  thread")
    # `first` has 8 ns to itself, `next` 30: 38 ns in which something ran.
    assert trace.hot_paths(min_share=0.5).select("path", "self_ns", "share").rows() == [("first;next", 30, 30 / 38), ("first", 8, 10 / 38)]
    assert trace.hot_functions().select("name", "share").rows() == [("next", 30 / 38), ("first", 10 / 38)]


def test_calls_without_a_duration_have_no_share() -> None:
    trace = tiny.trace(spans="kind  track  name  start_ns  dur_ns\napi  0  f  0  0", tracks="track  kind\n0  thread")
    assert trace.hot_paths()["share"].to_list() == trace.hot_functions()["share"].to_list() == [None]


def test_a_root_at_several_depths_is_one_path() -> None:
    trace = tiny.trace(
        spans="""
            kind    name  start_ns  dur_ns
            python  main  0         100
            python  f     10        30
            python  h     50        40
            python  f     60        20
            op      g     62        6
        """
    )
    tiny.assert_rows(
        trace.hot_paths(root="f"),
        """
        path  depth  calls  total_ns  self_ns
        f     0      2      50        44
        f;g   1      1      6         6
        """,
    )
