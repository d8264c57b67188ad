from pathlib import Path

import polars as pl

import stepscope
import tiny

SAMPLE = Path(__file__).parent.parent / "samples" / "chrome" / "torch-2.11" / "h200_modules.json.gz"
SPANS = """
    span  kind    track  name  start_ns  dur_ns
    0     python  0      main  0         100
    1     python  0      f     10        30
    2     op      0      a     12        2
    3     op      0      b     16        3
    4     op      0      g     20        15
    5     op      0      c     36        1
    6     python  0      f     50        4
    7     op      0      a     51        2
    8     op      1      g     0         7
    9     kernel  9      mm    30        1000
"""
TRACKS = """
    track  kind
    0      thread
    1      thread
    9      stream
"""


def test_calls_of_the_busiest_thread_are_in_the_order_of_time() -> None:
    rows = tiny.trace(spans=SPANS, tracks=TRACKS).flame_chart(min_share=0.0)
    tiny.assert_rows(
        rows.select("track", "node", "parent", "depth", "name", "start_ns", "end_ns", "self_ns", "calls", "span"),
        """
        track  node  parent  depth  name  start_ns  end_ns  self_ns  calls  span
        0      0     -       0      main  0         100     66       1      0
        0      1     0       1      f     10        40      9        1      1
        0      2     0       1      f     50        54      2        1      6
        0      3     1       2      a     12        14      2        1      2
        0      4     1       2      b     16        19      3        1      3
        0      5     1       2      g     20        35      15       1      4
        0      6     1       2      c     36        37      1        1      5
        0      7     2       2      a     51        53      2        1      7
        """,
    )
    assert tiny.trace(spans=SPANS, tracks=TRACKS).flame_chart(track=1)["name"].to_list() == ["g"]


def test_neighbors_that_are_too_short_are_merged_up_to_the_next_long_call() -> None:
    rows = tiny.trace(spans=SPANS, tracks=TRACKS).flame_chart(min_share=0.05)  # 5 of 100 ns
    tiny.assert_rows(
        rows.select("parent", "depth", "name", "start_ns", "end_ns", "total_ns", "self_ns", "calls"),
        """
        parent  depth  name  start_ns  end_ns  total_ns  self_ns  calls
        -       0      main  0         100     100       66       1
        0       1      f     10        40      30        9        1
        1       2      g     20        35      15        15       1
        0       1      -     50        54      4         4        2
        1       2      -     12        19      5         5        2
        1       2      -     36        37      1         1        1
        """,
    )
    assert rows["self_ns"].sum() == 100


def test_a_range_of_time_shows_what_runs_in_it_with_more_detail() -> None:
    rows = tiny.trace(spans=SPANS, tracks=TRACKS).flame_chart(start_ns=10, end_ns=20, min_share=0.1)
    assert rows["name"].to_list() == ["main", "f", "a", "b"]


def test_the_calls_of_a_recorded_thread_add_up_with_any_number_of_frames() -> None:
    trace = stepscope.open(SAMPLE)
    whole = trace.flame_chart(min_share=0.0)
    track = whole["track"][0]
    thread = trace.spans.filter(pl.col("track") == track, pl.col("kind") != "instant").select(pl.len(), pl.col("self_ns").sum()).collect()
    for rows in (whole, trace.flame_chart(), trace.flame_chart(min_share=0.0, max_frames=10)):
        assert (rows["calls"].sum(), rows["self_ns"].sum()) == thread.row(0)
    assert trace.flame_chart(min_share=0.0, max_frames=10)["name"].drop_nulls().len() == 10
