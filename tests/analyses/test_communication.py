import gzip
import json
from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny
from stepscope.model.trace import Trace
from stepscope.readers.common.name_parts import with_group_suffixes


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
            0     communication  odd_name         1     500       5       8
            1     communication  odd_name         1     500       9       8
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
        0     gloo:send        0        1        -
        0     odd_name         -        0        "no_wait:_not_known_to_be_a_collective"
        1     gloo:all_reduce  20       2        -
        1     gloo:broadcast   0        1        -
        1     gloo:recv        0        1        -
        1     odd_name         -        0        "no_wait:_not_known_to_be_a_collective"
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


def transfers(*rows: tuple[int, str, int, int, int, str | None], step: int | None = 1) -> Trace:
    """Calls of rank, name, start, duration, bytes and arguments."""
    spans = pl.DataFrame(rows, ["rank", "name", "start_ns", "dur_ns", "bytes", "args"], orient="row", infer_schema_length=None)
    spans = spans.with_columns(kind=pl.lit("communication"), track=pl.lit(0), step=pl.lit(step, pl.Int32))
    return Trace({"spans": pl.concat([stepscope.model.trace.complete(part) for part in spans.partition_by("rank", maintain_order=True)])})


def waits_of(trace: Trace) -> list[tuple[int, str, int | None, int]]:
    return trace.communication().select("rank", "name", "wait_ns", "matched").sort("rank", "name").rows()


def test_a_receive_waits_for_its_send_and_a_send_for_its_receive() -> None:
    """Stages of a pipeline of four ranks: 0 sends to 2 and 1 to 3, each in a group of two, and back."""
    forward = {pair: f'{{"Process Group Name":"pp","Process Group Ranks":[{pair[0]}, {pair[1]}]}}' for pair in ((0, 2), (1, 3))}
    trace = transfers(
        (0, "hcom_send__822_0_1", 100, 60, 8, forward[0, 2]),
        (2, "hcom_receive__822_0_1", 0, 160, 8, forward[0, 2]),
        (1, "hcom_send__822_0_1", 10, 90, 8, forward[1, 3]),
        (3, "hcom_receive__822_0_1", 80, 25, 8, forward[1, 3]),
        (2, "hcom_send__822_1_1", 300, 20, 8, forward[0, 2]),
        (0, "hcom_receive__822_1_1", 170, 150, 8, forward[0, 2]),
    )
    assert waits_of(trace) == [
        (0, "hcom_receive__822_1_1", 130, 1),
        (0, "hcom_send__822_0_1", 0, 1),
        (1, "hcom_send__822_0_1", 70, 1),
        (2, "hcom_receive__822_0_1", 100, 1),
        (2, "hcom_send__822_1_1", 0, 1),
        (3, "hcom_receive__822_0_1", 0, 1),
    ]
    (row,) = trace.communication(rank=0).filter(pl.col("name").str.contains("send"))["note"]
    assert row == "no wait: one rank"


def test_a_transfer_without_a_known_other_side_has_no_wait() -> None:
    """Three ranks in one group: which of the others rank 0 sends to is not said."""
    trace = transfers((0, "send", 0, 60, 8, None), (1, "recv", 10, 60, 8, None), (2, "recv", 20, 60, 8, None))
    got = trace.communication()
    assert got["wait_ns"].to_list() == [None] * 3
    assert set(got["note"]) == {"no wait: the other side of the transfer is not known"}
    spans_of_transfers = transfers(
        (0, "send", 0, 60, 8, '{"Dst Rank":2}'), (1, "recv", 10, 60, 8, None), (2, "recv", 20, 60, 8, '{"Src Rank":0}')
    )
    assert waits_of(spans_of_transfers) == [(0, "send", 20, 1), (1, "recv", None, 0), (2, "recv", 0, 1)]


def test_ranks_that_use_a_communicator_of_two_are_the_two_sides() -> None:
    """As torch_npu makes one for each pair of stages; rank 4 is in another."""
    name = '{"Process Group Name":"10.0.0.1%eth0_60000_0_17"}'
    trace = transfers(
        (0, "hcom_send__1_0_1", 0, 60, 8, name), (2, "hcom_receive__1_0_1", 50, 15, 8, name), (4, "hcom_allReduce__2_0_1", 0, 5, 8, "{}")
    )
    assert waits_of(trace)[:2] == [(0, "hcom_send__1_0_1", 50, 1), (2, "hcom_receive__1_0_1", 0, 1)]
    batched = transfers((0, "hcom_batchSendRecv__1_0_1", 0, 60, 8, name), (2, "hcom_batchSendRecv__1_0_1", 40, 25, 16, name))
    assert waits_of(batched) == [(0, "hcom_batchSendRecv__1_0_1", 40, 1), (2, "hcom_batchSendRecv__1_0_1", 0, 1)]


def test_links_tell_the_two_sides_of_a_transfer_in_a_larger_group() -> None:
    """Rank 0 of a pipeline of four sends to rank 1; what ranks 2 and 3 send is not between the two."""
    group = '{"Process Group Name":"pp","Process Group Ranks":[0, 1, 2, 3]}'
    calls = (
        (0, "hcom_send__1_0_1", 0, 60),
        (1, "hcom_receive__1_0_1", 50, 15),
        (2, "hcom_send__1_0_1", 0, 40),
        (3, "hcom_receive__1_0_1", 10, 35),
    )
    trace = transfers(*((rank, name, start, length, 8, group) for rank, name, start, length in calls))
    links = pl.DataFrame(
        {"rank": [0, 0, 1, 2, 3], "op": [calls[at][1] for at in (0, 0, 1, 2, 3)], "src": [0, 0, 1, 2, 3], "dst": [0, 1, 0, 3, 2]}
    )
    assert [wait for _, _, wait, _ in waits_of(trace)] == [None] * 4
    assert [wait for _, _, wait, _ in waits_of(Trace({**trace.tables, "links": links}))] == [50, 0, 10, 0]


def test_a_buffered_send_does_not_wait_and_nothing_arrives_before_it_is_sent() -> None:
    assert waits_of(transfers((0, "gloo:send", 0, 5, 8, None), (1, "gloo:recv", 30, 5, 8, None))) == [
        (0, "gloo:send", 0, 1),
        (1, "gloo:recv", 0, 1),
    ]
    early = transfers((0, "gloo:send", 100, 5, 8, None), (1, "gloo:recv", 30, 5, 8, None))
    assert waits_of(early) == [(0, "gloo:send", None, 0), (1, "gloo:recv", None, 0)]
    assert set(early.communication()["note"]) == {"no wait: the ranks' clocks differ, or calls are missing"}


def test_transfers_of_different_size_are_not_one() -> None:
    trace = transfers((0, "gloo:send", 0, 50, 8, None), (1, "gloo:recv", 30, 50, 16, None))
    assert [wait for _, _, wait, _ in waits_of(trace)] == [None, None]


def test_steps_in_which_both_sides_have_as_many_transfers_are_matched() -> None:
    """Rank 1 lost the receive of step 1."""
    trace = tiny.trace(
        spans="""
            rank  kind           name       step  start_ns  dur_ns  bytes
            0     communication  gloo:send  1     0         50      8
            0     communication  gloo:send  2     100       50      8
            1     communication  gloo:recv  2     140       50      8
        """
    )
    assert [row[2:] for row in waits_of(trace)] == [(40, 1), (0, 1)]


def test_a_recorded_wait_precedes_the_comparison_of_ranks() -> None:
    """Rank 1 of two recorded ones starts last, and waits 30 for a third one."""
    trace = transfers(
        (0, "hcom_allReduce__1_0_1", 0, 100, 8, '{"wait_ns":55,"transit_ns":40,"idle_ns":5}'),
        (1, "hcom_allReduce__1_0_1", 20, 80, 8, '{"wait_ns":30,"transit_ns":40,"idle_ns":10}'),
        (1, "hcom_allReduce__1_1_1", 200, 80, 16, None),
    )
    rows = """
        rank  name                   total_ns  wait_ns  known_waits  matched  transit_ns  idle_ns  note
        0     hcom_allReduce__1_0_1  100       55       1            1        40          5        "wait_as_the_recording_says"
        1     hcom_allReduce__1_0_1  80        30       1            1        40          10       "wait_as_the_recording_says"
        1     hcom_allReduce__1_1_1  80        -        0            0        -           -        -
    """
    tiny.assert_rows(trace.communication().with_columns(note=pl.col("note").str.extract("^(wait .*)")), rows)


def test_where_ranks_of_the_group_are_missing_a_wait_is_the_least_it_can_be() -> None:
    args = '{"Process Group Name":"0","Process Group Ranks":"[0, 1, ..., 7]","Group size":8}'
    trace = transfers((0, "ncclAllReduce", 0, 100, 8, args), (1, "ncclAllReduce", 20, 80, 8, args))
    got = trace.communication()
    assert got["wait_ns"].to_list() == [20, 0]
    assert set(got["note"]) == {"wait at least: some ranks of the group are not recorded"}


def test_clocks_on_which_a_rank_leaves_before_another_enters_are_aligned() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           name             step  start_ns  dur_ns  bytes
            0     communication  gloo:all_reduce  0     0         50      8
            1     communication  gloo:all_reduce  0     1010      40      8
            0     communication  gloo:broadcast   0     100       50      8
            1     communication  gloo:broadcast   0     1120      30      8
        """
    )
    # The ends of the reduce are 1000 apart, so rank 1 started 10 after rank 0, and the broadcast 20: less than the 40 of its transit.
    got = trace.communication()
    assert got.select("wait_ns", "uncertain_wait_ns").rows() == [(10, 10), (20, 20), (0, 0), (0, 0)]
    assert got["note"].unique().to_list() == ["wait on aligned clocks"]


def test_clocks_that_no_collective_aligns_give_no_wait() -> None:
    trace = tiny.trace(
        spans="""
            rank  kind           name       step  start_ns  dur_ns  bytes
            0     communication  gloo:send  0     1000      50      8
            1     communication  gloo:recv  0     0         50      8
        """
    )
    got = trace.communication()
    assert got["wait_ns"].to_list() == [None] * 2
    assert got["note"].unique().to_list() == ["no wait: the ranks' clocks differ, or calls are missing"]


def test_the_launching_calls_tell_collective_group_and_size() -> None:
    """The shapes are those of PyTorch 2.0 (no message sizes) and 2.7 (message sizes) around an NCCL kernel."""
    args_text = '{"Collective name":"_allgather_base","In msg nelems":100,"Out msg nelems":800,"dtype":"BFloat16","Process Group Name":"3"}'
    spans = pl.DataFrame(
        [
            ("op", 0, "c10d::allreduce_", 0, 100, None, "[[],[],[],[]]", '["TensorList","","","Scalar"]', None),
            ("op", 0, "record_param_comms", 1, 98, None, None, None, None),
            ("annotation", 1, "nccl:all_reduce", 2, 96, None, "[[19618307]]", '["float"]', None),
            ("api", 0, "cudaLaunchKernel", 3, 5, None, None, None, None),
            ("communication", 7, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", 200, 1000, 3, None, None, None),
            ("op", 0, "record_param_comms", 300, 98, None, None, None, args_text),
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
    trace = with_group_suffixes(Trace({"spans": stepscope.model.trace.complete(spans), "tracks": tracks}))
    got = trace.communication().sort("total_ns", "name")
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
    assert Trace({"spans": stepscope.model.trace.complete(spans)}).communication()["collective"].to_list() == [collective]


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
    trace = stepscope.model.trace.combine([stepscope.open(file) for file in ranks.values()])
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
