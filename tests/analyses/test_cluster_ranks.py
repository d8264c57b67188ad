"""Figures of ranks, groups, stages and links of a job, worked out by hand."""

from pathlib import Path

import pytest

import pipeline_file
import stepscope
import tiny
from stepscope.errors import UsageError
from stepscope.model.trace import Trace

MS = 1_000_000


def pipeline() -> Trace:
    """Two stages of two copies on two hosts: stage 1 receives for 20 ms of the 100 ms of a step; rank 3 computes 20 ms longer."""
    work = {0: (60, 40), 1: (60, 40), 2: (60, 20), 3: (80, 0)}  # computation, collective
    spans, steps = ["rank track kind name step start_ns dur_ns bytes"], ["rank step start_ns end_ns"]
    for rank, (compute, collective) in work.items():
        for step in range(4):
            now = step * 100
            steps.append(f"{rank} {step} {now * MS} {now * MS + 100 * MS}")
            if rank >= 2:
                spans.append(f"{rank} 8 communication ncclRecv {step} {now * MS} {20 * MS} 8")
                now += 20
            else:  # while it computes
                spans.append(f"{rank} 9 communication ncclSend {step} {now * MS} {10 * MS} 8")
            spans.append(f"{rank} 7 kernel gemm {step} {now * MS} {compute * MS} -")
            if collective:
                spans.append(f"{rank} 8 communication ncclAllReduce {step} {(now + compute) * MS} {collective * MS} 8")
    tracks = "\n".join(f"{rank} 7 stream a 0\n{rank} 8 stream b 0\n{rank} 9 stream c 0" for rank in work)
    groups = "\n".join(
        f"{rank} {name} {name} {','.join(map(str, members))}"
        for name, every in {"pp": [(0, 2), (1, 3)], "dp": [(0, 1), (2, 3)]}.items()
        for members in every
        for rank in members
    )
    return tiny.trace(
        spans="\n".join(spans),
        steps="\n".join(steps),
        tracks=f"rank track kind label device\n{tracks}",
        hosts="rank host\n0 a\n1 a\n2 b\n3 b",
        process_groups=f"rank group description members\n{groups}",
    )


def test_each_rank_has_its_means_and_its_places() -> None:
    table = pipeline().cluster_ranks()
    assert table.select("rank", "host", "dp", "pp", "steps").rows() == [
        (0, "a", 0, 0, 4),
        (1, "a", 1, 0, 4),
        (2, "b", 0, 1, 4),
        (3, "b", 1, 1, 4),
    ]
    assert table["own_ns"].to_list() == [60 * MS, 60 * MS, 60 * MS, 80 * MS]
    assert table["exposed_ns"].to_list() == [40 * MS, 40 * MS, 40 * MS, 20 * MS]
    assert table["excess_share"].to_list() == pytest.approx([0, 0, 0, 1 / 3])
    assert table.filter(table["slow_ranks"] > 0)["rank"].to_list() == [3]


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("host", [("a", "0-1", 2, 60), ("b", "2-3", 2, 70)]),
        ("pp", [("0", "0-1", 2, 60), ("1", "2-3", 2, 70)]),
        ("dp", [("0", "0, 2", 2, 60), ("1", "1, 3", 2, 70)]),
        ("tp", []),
    ],
)
def test_figures_are_grouped_by_host_and_dimension(by: str, rows: list[tuple[str, str, int, int]]) -> None:
    table = pipeline().cluster_ranks(by=by)
    assert table.select("label", "ranks", "count", "own_ns").rows() == [(*row[:3], row[3] * MS) for row in rows]


def test_an_unknown_grouping_is_refused() -> None:
    with pytest.raises(UsageError, match="no grouping 'pod'"):
        pipeline().cluster_ranks(by="pod")


def test_cells_have_the_figure_of_each_rank_and_step() -> None:
    table = pipeline().cluster_cells(figure="compute_ns")
    assert table.height == 16 and table.filter(table["rank"] == 3)["value"].to_list() == [80.0 * MS] * 4
    assert table["usual"].unique().to_list() == [60.0 * MS]
    slowest = pipeline().cluster_cells(figure="compute_ns", order="value").filter(table["column"] == 0)
    assert slowest["label"].to_list() == ["3", "0", "1", "2"]


def test_neighbors_share_a_cell_that_keeps_the_highest_value() -> None:
    table = pipeline().cluster_cells(figure="compute_ns", max_rows=2, max_columns=1)
    tiny.assert_rows(
        table,
        """
        row  column  label  rank  first_step  last_step  value       highest     usual
        0    0       0-1    0     0           3          60000000.0  60000000.0  60000000.0
        1    0       2-3    3     0           3          70000000.0  80000000.0  60000000.0
        """,
    )


def test_stages_have_the_columns_of_mindinsight() -> None:
    table = pipeline().cluster_stages(per_step=False)
    assert table.select("mode", "how").unique().rows() == [("pipeline-parallel", "computed")]
    tiny.assert_rows(
        table,
        """
        rank  stage  total_ns   computation_ns  communication_alone_ns  receive_alone_ns  collective_alone_ns  stage_ns   bubble_share
        0     0      100000000  60000000        40000000                0                 40000000             100000000  0.0
        1     0      100000000  60000000        40000000                0                 40000000             100000000  0.0
        2     1      100000000  60000000        40000000                20000000          20000000             80000000   0.2
        3     1      100000000  80000000        20000000                20000000          0                    80000000   0.2
        """,
    )


MINDINSIGHT = Path(__file__).parents[3] / "shared/data/mindinsight"


@pytest.mark.skipif(not MINDINSIGHT.is_dir(), reason="needs ../shared/data")
def test_recorded_stages_are_those_of_the_file() -> None:
    row = stepscope.open(MINDINSIGHT / "run_4/normal_run").cluster_stages().row(0, named=True)
    # ascend_cluster_analyse_pipeline-parallel_1_2_1.csv, in ms
    expected = {"computation": 651.9051, "communication_alone": 1293.1231, "stage": 1577.1234, "receive_alone": 368.7766}
    assert {name: row[f"{name}_ns"] / MS for name in expected} == pytest.approx(expected)
    assert row["collective_alone_ns"] / MS == pytest.approx(227.1234) and row["how"] == "recorded"


def test_waits_name_the_rank_that_comes_last() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           name           step  start_ns  dur_ns  bytes
            0     communication  ncclAllReduce  1     0         100     8
            1     communication  ncclAllReduce  1     90        10      8
            2     communication  ncclAllReduce  1     50        50      8
            0     communication  ncclAllReduce  2     290       10      8
            1     communication  ncclAllReduce  2     200       100     8
            2     communication  ncclAllReduce  2     200       100     8
        """,
        hosts="rank host\n0 a\n1 a\n2 a",
    )
    tiny.assert_rows(
        trace.rank_waits(by_group=False),
        """
        rank  awaited  calls  wait_ns  longest_ns  step  start_ns  end_ns  uncertain_wait_ns
        0     1        1      90       90          1     0         90      0
        1     0        1      90       90          2     200       290     0
        2     0        1      90       90          2     200       290     0
        2     1        1      40       40          1     50        90      0
        """,
    )


def test_a_receive_waits_for_its_sender() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           name      step  start_ns  dur_ns  bytes
            0     communication  ncclSend  1     70        30      8
            1     communication  ncclRecv  1     0         100     8
        """
    )
    assert trace.rank_waits().select("rank", "awaited", "collective", "wait_ns").rows() == [(1, 0, "recv", 70)]


def test_links_are_bytes_by_time_and_neighbors_share_a_cell() -> None:
    links = """
        rank  src  dst  transport  bytes  dur_ns
        0     0    1    HCCS       400    10
        1     0    1    HCCS       400    30
        0     0    2    RDMA       100    10
        0     0    0    SDMA       999    1
        0     0    3    RDMA       100    50
    """
    table = tiny.trace(links=links).link_matrix()
    assert table.select("src", "dst", "transport", "bytes", "bytes_per_s").rows() == [
        ("0", "1", "HCCS", 800, 20e9),
        ("0", "2", "RDMA", 100, 10e9),
        ("0", "3", "RDMA", 100, 2e9),
    ]
    shared = tiny.trace(links=links).link_matrix(max_rows=2, transport="RDMA").row(0, named=True)
    assert (shared["dst"], shared["links"], shared["slowest"], shared["dst_rank"]) == ("2-3", 2, 2e9, 3)
    assert shared["bytes_per_s"] == pytest.approx(200 / 60e-9)


def test_a_pipeline_chart_has_the_operations_of_each_stage_and_their_bubble(tmp_path: Path) -> None:
    trace = stepscope.open(pipeline_file.write(tmp_path))
    table = trace.pipeline_chart(step=7)
    assert table["rank"].unique().sort().to_list() == [0, 2]
    forward = table.filter((table["stage"] == 1) & (table["kind"] == "forward"))
    # Stage 1 of replica 0 computes each of two micro-batches for 10 ms, after it has received the first for 10 ms.
    assert forward.select("start_ns", "end_ns", "micro_batch").rows() == [(10 * MS, 20 * MS, 0), (40 * MS, 50 * MS, 1)]
    assert table.filter(table["kind"] == "receive")["operation"].unique().sort().to_list() == ["backward-recv", "forward-recv"]
    slow = trace.pipeline_chart(step=7, replica=1)
    assert slow["rank"].unique().sort().to_list() == [1, 3]


def test_expert_load_is_compared_with_the_mean_of_the_group() -> None:
    spans = "\n".join(
        f"{rank} communication ncclAllToAll {step} {100 * step} 50 {size}" for rank, size in ((0, 100), (1, 300)) for step in (0, 1)
    )
    trace = tiny.trace(
        spans=f"rank kind name step start_ns dur_ns bytes\n{spans}",
        steps="rank step start_ns end_ns\n0 0 0 100\n0 1 100 200\n1 0 0 100\n1 1 100 200",
        process_groups="rank group description members\n0 e ep 0,1\n1 e ep 0,1",
    )
    assert trace.expert_load().select("rank", "ep", "exchanges", "bytes", "load", "exchange_ns").rows() == [
        (0, 0, 1, 100, 0.5, 50),
        (1, 1, 1, 300, 1.5, 50),
    ]


def test_a_slow_clock_and_a_hot_device_are_outliers() -> None:
    rows = ["rank at_ns name value unit series owner number"]
    for rank in range(8):
        rows.append(f"{rank} 50 clock {900 if rank == 5 else 1800 + rank} MHz clock gpu 0")
        rows.append(f"{rank} 50 temperature {88 if rank == 6 else 60 + rank / 10} C temperature gpu 0")
    steps = "\n".join(f"{rank} 0 0 100" for rank in range(8))
    trace = tiny.trace(counters="\n".join(rows), steps=f"rank step start_ns end_ns\n{steps}")
    table = trace.device_outliers()
    assert table.filter("outlier").select("rank", "figure", "value").rows() == [(5, "clock", 900.0), (6, "temperature", 88.0)]
    assert table.height == 16


def test_missing_shorter_and_broken_ranks_are_named(tmp_path: Path) -> None:
    steps = "\n".join(f"{rank} {step} {100 * step} {100 * step + 100}" for rank in (0, 1, 3) for step in range(2 if rank == 1 else 4))
    trace = tiny.trace(steps=f"rank step start_ns end_ns\n{steps}").with_meta(world_size=6)
    trace = trace.with_problems([{"rank": 4, "file": "rank4.json", "what": "rank 4 is not shown: truncated", "lost": 1}])
    tiny.assert_rows(
        trace.ranks(),
        """
        rank  state     reason                       steps  first_step  last_step
        0     recorded  -                            4      0           3
        1     shorter   "2_of_4_steps"               2      0           1
        2     missing   "no_recording_of_this_rank"  -      -           -
        3     recorded  -                            4      0           3
        4     broken    "rank4.json:_truncated"      -      -           -
        5     missing   "no_recording_of_this_rank"  -      -           -
        """,
    )
