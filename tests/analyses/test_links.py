import tiny


def test_a_links_bandwidth_is_its_bytes_by_its_time() -> None:
    trace = tiny.trace(
        links="""
            rank  step  op   src  dst  transport  bytes  dur_ns
            0     1     all  0    1    HCCS       1000   100
            0     2     all  0    1    HCCS       3000   300
            0     2     all  0    1    RDMA       500    1000
            0     2     gat  1    0    HCCS       800    -
            1     2     all  0    1    HCCS       1      0
        """
    )
    # 4000 bytes in 400 ns are 10 bytes per ns. No time, or a time of zero: no bandwidth.
    tiny.assert_rows(
        trace.links(),
        """
        rank  src  dst  transport  transfers  bytes  total_ns  bytes_per_s
        0     0    1    HCCS       2          4000   400       10000000000.0
        0     0    1    RDMA       1          500    1000      500000000.0
        0     1    0    HCCS       1          800    0         -
        1     0    1    HCCS       1          1      0         -
        """,
    )
    assert trace.links(step=1)["bytes"].to_list() == [1000]
    assert trace.links(op="gat")["src"].to_list() == [1]


def test_a_trace_without_links_has_no_rows() -> None:
    assert tiny.trace().links().height == 0
