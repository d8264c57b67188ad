from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny
from stepscope.errors import UsageError

SAMPLE = Path(__file__).parent.parent / "samples" / "chrome" / "torch-2.11" / "h200_modules.json.gz"

# main calls f twice; f calls g, and itself; g launches the kernel mm at 22 and 15. The step is numbered, as profilers name it.
SPANS = """
    kind    track  name     start_ns  dur_ns  op  span
    step    0      step#7   0         100     -   0
    python  0      f        10        30      -   1
    op      0      g        15        5       -   2
    python  0      f        20        10      -   3
    op      0      g        22        4       -   4
    python  0      f        50        20      -   5
    step    0      step#8   100       60      -   6
    python  0      f        110       50      -   7
    op      1      g        0         7       -   8
    kernel  9      mm       30        1000    2   9
    kernel  9      mm       1040      200     4   10
    kernel  9      lost     1300      50      -   11
"""
TRACKS = """
    track  kind    label
    0      thread  main
    1      thread  worker
    9      stream  stream
"""
COLUMNS = ("name", "kind", "parent", "depth", "calls", "total_ns", "self_ns", "start_ns", "span")


def _path(rows: pl.DataFrame) -> list[str]:
    """The names from the outermost frame to each row."""
    paths: dict[int, str] = {}
    for node, parent, name in rows.select("node", "parent", "name").iter_rows():
        paths[node] = (f"{paths[parent]};" if parent is not None else "") + str(name or "…")
    return list(paths.values())


def test_calls_of_one_path_are_one_frame_in_all_steps() -> None:
    rows = tiny.trace(spans=SPANS, tracks=TRACKS).flame_graph()
    tiny.assert_rows(
        rows.with_columns(path=pl.Series(_path(rows))).sort("path").select("path", *COLUMNS[1:2], *COLUMNS[3:]),
        """
        path          kind    depth  calls  total_ns  self_ns  start_ns  span
        g             op      0      1      7         7        0         8
        step          step    0      2      160       60       0         0
        step;f        python  1      3      100       85       10        7
        step;f;f      python  2      1      10        6        20        3
        step;f;f;g    op      3      1      4         4        22        4
        step;f;g      op      2      1      5         5        15        2
        """,
    )
    assert rows["self_ns"].sum() == 167
    assert rows.filter(name="step")["share"].item() == pytest.approx(160 / 167)


def test_threads_are_the_outermost_frames_on_request() -> None:
    rows = tiny.trace(spans=SPANS, tracks=TRACKS).flame_graph(by_thread=True)
    tiny.assert_rows(
        rows.filter(kind="thread").select("name", "depth", "total_ns", "self_ns", "span"),
        """
        name    depth  total_ns  self_ns  span
        main    0      160       0        0
        worker  0      7         0        1
        """,
    )
    assert "worker;g" in _path(rows)


def test_device_time_has_the_path_of_the_calls_that_launched_it() -> None:
    rows = tiny.trace(spans=SPANS, tracks=TRACKS).flame_graph(by="device")
    tiny.assert_rows(
        rows.with_columns(path=pl.Series(_path(rows))).sort("path").select("path", "kind", "calls", "total_ns", "self_ns"),
        """
        path           kind    calls  total_ns  self_ns
        lost           kernel  1      50        50
        step           step    1      1200      0
        step;f         python  1      1200      0
        step;f;f       python  1      200       0
        step;f;f;g     op      1      200       0
        step;f;f;g;mm  kernel  1      200       200
        step;f;g       op      1      1000      0
        step;f;g;mm    kernel  1      1000      1000
        """,
    )


def test_modules_contain_their_operators_and_kernels() -> None:
    trace = tiny.trace(
        spans="""
            kind    track  name  start_ns  dur_ns  op  span  op_type  scope
            op      0      g     15        5       -   0     g        net/conv
            kernel  9      mm    30        1000    0   1     g        net/conv
            kernel  9      mm    1040      200     0   2     g        net
            copy    9      memo  1300      50      -   3     -        -
        """,
        tracks=TRACKS,
    )
    rows = trace.flame_graph(by="modules")
    tiny.assert_rows(
        rows.with_columns(path=pl.Series(_path(rows))).sort("path").select("path", "kind", "depth", "calls", "total_ns", "self_ns", "span"),
        """
        path           kind    depth  calls  total_ns  self_ns  span
        memo           copy    0      1      50        50       3
        net            scope   0      2      1200      0        1
        net;conv       scope   1      1      1000      0        1
        net;conv;g     op      2      1      1000      0        1
        net;conv;g;mm  kernel  3      1      1000      1000     1
        net;g          op      1      1      200       0        2
        net;g;mm       kernel  2      1      200       200      2
        """,
    )


def test_callees_of_a_function_start_at_its_outermost_calls_wherever_they_are() -> None:
    # f at depth 1 and, below another function, at depth 2: one root.
    trace = tiny.trace(
        spans="""
            kind    name  start_ns  dur_ns
            python  main  0         100
            python  f     10        30
            op      g     15        5
            python  h     50        40
            python  f     60        20
            op      g     62        6
        """
    )
    rows = trace.flame_graph(function="f")
    tiny.assert_rows(
        rows.with_columns(path=pl.Series(_path(rows))).select("path", "depth", "calls", "total_ns", "self_ns", "share"),
        """
        path  depth  calls  total_ns  self_ns  share
        f     0      2      50        39       0.5
        f;g   1      2      11        11       0.11
        """,
    )
    assert trace.flame_graph(function="nothing").height == 0


def test_callers_are_an_inverted_tree_whose_times_are_those_of_the_function() -> None:
    trace = tiny.trace(
        spans="""
            kind    name  start_ns  dur_ns
            python  main  0         100
            python  f     10        30
            op      g     15        5
            python  h     50        40
            python  f     60        20
            op      g     62        6
            op      g     300       9
        """
    )
    rows = trace.flame_graph(function="g", callers_of=True)
    tiny.assert_rows(
        rows.with_columns(path=pl.Series(_path(rows))).sort("path").select("path", "calls", "total_ns", "self_ns"),
        """
        path        calls  total_ns  self_ns
        g           3      20        9
        g;f         2      11        0
        g;f;h       1      6         0
        g;f;h;main  1      6         6
        g;f;main    1      5         5
        """,
    )


def test_small_frames_become_one_other_node_and_no_time_is_lost() -> None:
    trace = tiny.trace(spans=SPANS, tracks=TRACKS)
    rows = trace.flame_graph(min_share=0.06)  # of 167: at least 10.02
    tiny.assert_rows(
        rows.select("name", "kind", "parent", "depth", "calls", "total_ns", "self_ns", "merged"),
        """
        name  kind            parent  depth  calls  total_ns  self_ns  merged
        step  step            -       0      2      160       60       -
        f     python          0       1      3      100       85       -
        -     "other_frames"  -       0      1      7         7        1
        -     "other_frames"  1       2      2      15        15       3
        """,
    )
    assert rows["self_ns"].sum() == 167
    assert trace.flame_graph(max_frames=1).select("name", "merged").rows() == [("step", None), (None, 1), (None, 4)]


def test_the_trees_of_a_recording_add_up_to_its_host_and_device_time() -> None:
    trace = stepscope.open(SAMPLE)
    kernels = trace.spans.filter(pl.col("kind").is_in(["kernel", "copy", "set"])).select(pl.col("dur_ns").sum()).collect().item()
    for by in ("device", "modules"):
        for share in (0.0, 0.01):
            assert trace.flame_graph(by=by, min_share=share)["self_ns"].sum() == kernels
    assert trace.flame_graph()["self_ns"].sum() == trace.hot_paths()["self_ns"].sum()
    with pytest.raises(UsageError, match="tree"):
        trace.flame_graph(by="devices")


def test_a_trace_without_spans_has_an_empty_tree() -> None:
    trace = tiny.trace(steps="step  start_ns  end_ns\n0  0  10")
    assert trace.flame_graph().height == trace.flame_graph(by="device").height == trace.flame_chart().height == 0


@pytest.mark.parametrize("by", ["host", "device", "modules"])
def test_functions_have_all_their_calls_however_small_the_frames_are(by: str) -> None:
    trace = stepscope.open(SAMPLE)
    functions, whole = trace.flame_functions(by=by), trace.flame_graph(by=by, min_share=0, max_frames=1_000_000)
    sums = whole.group_by("name", "kind").agg(calls=pl.col("calls").sum(), self_ns=pl.col("self_ns").sum())
    key = ["name", "kind", "calls", "self_ns"]
    assert functions.select(key).sort(key).equals(sums.select(key).sort(key))
    if by == "host":
        assert functions.drop("self_share", "share").equals(trace.hot_functions().drop("self_share", "share"))
