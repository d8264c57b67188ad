import tiny


def test_every_span_counts_under_its_kind_and_name() -> None:
    trace = tiny.trace(
        spans="""
            kind    name  category  start_ns  dur_ns
            other   work  Engine    0         100
            other   part  Engine    10        30
            other   part  Engine    50        20
            kernel  part  -         70        10
        """
    )
    tiny.assert_rows(
        trace.totals(),
        """
        rank  kind    category  name  calls  total_ns  self_ns  avg_ns  min_ns  max_ns
        0     other   Engine    work  1      100       40       100.0   100     100
        0     other   Engine    part  2      50        50       25.0    20      30
        0     kernel  -         part  1      10        10       10.0    10      10
        """,
    )
    assert trace.totals(kind="kernel")["calls"].to_list() == [1]
