import gzip
import json
from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny
from stepscope.trace import Trace


def test_a_call_is_hidden_where_its_rank_computes_and_exposed_elsewhere() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           track  name             start_ns  dur_ns  bytes
            0     kernel         1      mm               0         40      -
            0     kernel         2      mm               20        30      -
            0     communication  3      ncclAllReduce    40        40      400
            0     communication  4      ncclAllReduce    45        10      100
            0     communication  3      ncclAllReduce    100       10      -
            0     op             0      aten::mm         0         200     -
            1     op             0      aten::mm         0         10      -
            1     communication  3      gloo:broadcast   5         10      -
        """
    )
    # On rank 0 kernels run until 50: 10 of the first call and 5 of the second. Rank 1 has no device: operators compute there.
    # The calls of known size moved 500 bytes in 50 ns.
    tiny.assert_rows(
        trace.communication(),
        """
        rank  name            collective  calls  total_ns  avg_ns  min_ns  max_ns  overlapped_ns  exposed_ns  bytes  bytes_per_s    unsized
        0     ncclAllReduce   all_reduce  3      60        20.0    10      40      15             45          500    10000000000.0  1
        1     gloo:broadcast  broadcast   1      10        10.0    10      10      5              5           -      -              1
        """,
    )


def test_a_rank_waits_until_the_last_one_has_started() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           name             step  start_ns  dur_ns  bytes
            0     communication  gloo:all_reduce  0     10        90      8
            1     communication  gloo:all_reduce  0     70        35      8
            0     communication  gloo:all_reduce  1     220       30      8
            1     communication  gloo:all_reduce  1     200       50      8
            0     communication  gloo:broadcast   1     300       5       8
            1     communication  gloo:broadcast   1     320       9       8
            0     communication  gloo:send        1     400       5       8
            1     communication  gloo:recv        1     400       9       8
        """
    )
    # Rank 0 waits 60 in the first reduce, rank 1 20 in the second. The sender of a broadcast may leave before the other comes: it
    # waited as long as it was there.
    tiny.assert_rows(
        trace.communication().select("rank", "name", "wait_ns", "matched", "note"),
        """
        rank  name             wait_ns  matched  note
        0     gloo:all_reduce  60       2        -
        0     gloo:broadcast   5        1        -
        0     gloo:send        -        0        "no_wait:_not_known_to_be_a_collective"
        1     gloo:all_reduce  20       2        -
        1     gloo:broadcast   0        1        -
        1     gloo:recv        -        0        "no_wait:_not_known_to_be_a_collective"
        """,
    )
    assert trace.communication(rank=0)["note"].unique().to_list() == ["no wait: one rank"]


def test_calls_are_matched_by_size_within_a_step_and_only_where_every_rank_has_as_many() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           name             step  start_ns  dur_ns  bytes
            0     communication  gloo:all_reduce  0     0         50      8
            0     communication  gloo:all_reduce  0     10        50      16
            0     communication  gloo:all_reduce  1     100       50      8
            0     communication  gloo:all_reduce  1     200       50      8
            1     communication  gloo:all_reduce  0     20        50      16
            1     communication  gloo:all_reduce  0     30        50      8
            1     communication  gloo:all_reduce  1     110       50      8
        """
    )
    # In step 0 the calls of 8 and of 16 bytes cross: rank 0 waits 30 and 10. In step 1 no one can tell which call rank 1 lacks.
    tiny.assert_rows(
        trace.communication().select("rank", "calls", "wait_ns", "matched", "note"),
        """
        rank  calls  wait_ns  matched  note
        0     4      40       2        "no_wait:_the_other_ranks_have_no_such_call"
        1     3      0        2        "no_wait:_the_other_ranks_have_no_such_call"
        """,
    )


def test_clocks_on_which_a_rank_leaves_before_another_comes_give_no_wait() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           name             step  start_ns  dur_ns  bytes
            0     communication  gloo:all_reduce  0     0         50      8
            1     communication  gloo:all_reduce  0     1000      50      8
            0     communication  gloo:broadcast   0     100       50      8
            1     communication  gloo:broadcast   0     1100      50      8
        """
    )
    got = trace.communication()
    assert got["wait_ns"].to_list() == [None] * 4
    assert got["note"].unique().to_list() == ["no wait: the ranks' clocks differ, or calls are missing"]


def test_the_launching_calls_tell_collective_group_and_size() -> None:
    """The shapes are those of PyTorch 2.0 (no message sizes) and 2.7 (message sizes) around an NCCL kernel."""
    told = '{"Collective name":"_allgather_base","In msg nelems":100,"Out msg nelems":800,"dtype":"BFloat16","Process Group Name":"3"}'
    spans = pl.DataFrame(
        [
            ("op", 0, "c10d::allreduce_", 0, 100, None, "[[],[],[],[]]", '["TensorList","","","Scalar"]', None),
            ("op", 0, "record_param_comms", 1, 98, None, None, None, None),
            ("annotation", 1, "nccl:all_reduce", 2, 96, None, "[[19618307]]", '["float"]', None),
            ("api", 0, "cudaLaunchKernel", 3, 5, None, None, None, None),
            ("communication", 7, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", 200, 1000, 3, None, None, None),
            ("op", 0, "record_param_comms", 300, 98, None, None, None, told),
            ("api", 0, "cudaLaunchKernelExC", 303, 5, None, None, None, None),
            ("communication", 7, "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 2000, 100, 6, None, None, None),
            ("communication", 8, "hcom_allReduce__868_0_1", 2000, 100, None, None, None, '{"data_type":"FP32","count":4097000}'),
            ("communication", 9, "gloo:all_gather", 2000, 100, None, "[[[4,5],[6]]]", '["TensorList"]', None),
            ("communication", 9, "gloo:barrier", 2200, 100, None, None, None, None),
        ],
        schema=["kind", "track", "name", "start_ns", "dur_ns", "flow_in", "shapes", "dtypes", "args"],
        orient="row",
    ).with_columns(rank=0)
    # The annotation stands on a track beside that of its thread.
    tracks = pl.DataFrame({"rank": 0, "track": [0, 1], "pid": "7", "tid": "8", "kind": ["thread", "annotation"]})
    got = Trace({"spans": stepscope.trace.complete(spans), "tracks": tracks}).communication().sort("total_ns", "name")
    assert got.select("collective", "group", "bytes").rows() == [
        ("all_gather", None, None),  # a list of tensors of unsaid type
        ("barrier", None, None),
        ("all_reduce", "868", 4097000 * 4),
        ("all_gather", "3", 800 * 2),
        ("all_reduce", None, 19618307 * 4),
    ]


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)", "reduce_scatter"),
        ("ncclAllGatherRingLLKernel_copy_i8(ncclColl)", "all_gather"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", None),
        ("hcom_reduceScatter__127_3_1", "reduce_scatter"),
        ("hcom_alltoallvc__127_3_1", "all_to_all"),
        ("hcom_receive__127_3_1", "recv"),
        ("gloo:reduce_scatter", "reduce_scatter"),
        ("mpi:scatter", "scatter"),
    ],
)
def test_the_collective_is_read_from_the_name(name: str, collective: str | None) -> None:
    spans = pl.DataFrame({"kind": "communication", "rank": 0, "track": 0, "name": name, "start_ns": 0, "dur_ns": 1})
    assert Trace({"spans": stepscope.trace.complete(spans)}).communication()["collective"].to_list() == [collective]


def test_a_trace_without_communication_has_no_rows() -> None:
    assert tiny.trace().communication().height == 0


def test_two_ranks_over_gloo_wait_for_each_other_as_their_files_say(shared: Path) -> None:
    folder = shared / "torch_h200"
    ranks = {rank: folder / f"ddp_gloo_rank{rank}.json.gz" for rank in (0, 1)}
    calls: dict[int, dict[tuple[str, str], list[tuple[float, float]]]] = {}
    for rank, file in ranks.items():
        calls[rank] = {}
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
        for event in sorted(
            (e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("gloo:")), key=lambda e: e["ts"]
        ):
            calls[rank].setdefault((event["name"], str(event["args"]["Input Dims"])), []).append((event["ts"], event["ts"] + event["dur"]))
    trace = stepscope.trace.combine([stepscope.open(file) for file in ranks.values()])
    got = trace.communication()
    for rank, name in ((rank, name) for rank in ranks for name in ("gloo:all_reduce", "gloo:broadcast")):
        row = got.row(by_predicate=(pl.col("rank") == rank) & (pl.col("name") == name), named=True)
        mine = [(key, nth, *span) for key, spans in calls[rank].items() if key[0] == name for nth, span in enumerate(spans)]
        wait = sum(max(min(calls[1 - rank][key][nth][0], end) - start, 0) for key, nth, start, end in mine)
        assert row["calls"] == row["matched"] == len(mine)
        assert row["total_ns"] == pytest.approx(sum(end - start for _, _, start, end in mine) * 1000, abs=2 * len(mine))
        assert row["wait_ns"] == pytest.approx(wait * 1000, abs=2 * len(mine))
    assert got["bytes"].to_list() == [3 * 4 * (512000 + 7214056 + 3963456), 3 * (4 * 9600 + 8 * 20)] * 2


def test_sizes_of_real_nccl_calls_are_those_of_the_calls_that_launched_them(shared: Path) -> None:
    """Read off the file by launch: a Python script with only json found the operators around each launch."""
    trace = stepscope.open(shared / "torch_public" / "two_ranks" / "sampled_rank-0.json.gz")
    assert sorted(trace.communication().select("collective", "calls", "bytes").iter_rows()) == [
        ("all_gather", 2, 2 * 1073741824),
        ("all_reduce", 4, 4 * (19618307 + 26955536 + 26258430 + 5716654)),
        ("all_to_all", 4, 8 * 384 + 2 * 419430400 + 4 * 2846720),
    ]
