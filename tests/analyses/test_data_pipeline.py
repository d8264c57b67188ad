import importlib
import json
from pathlib import Path

import polars as pl

import tiny
from stepscope.model.strings.messages import catalog
from stepscope.model.trace import Trace
from stepscope.readers.common import minddata

PIPELINE = """
    op_id  op_type      workers  parent  queue_capacity
    0      EpochCtrlOp  1        -       -
    1      BatchOp      1        0       10
    2      MapOp        2        1       10
    3      GeneratorOp  1        2       10
"""


def queues(**depths: list[int]) -> str:
    """Samples of the operators' queues at 0, 1, 2 ..., by operator."""
    rows = [f'"queue_{name[2:]}_X" {at} {value} rows' for name, values in depths.items() for at, value in enumerate(values)]
    return "\n".join(["name at_ns value unit", *rows])


def verdicts(**depths: list[int]) -> list[str | None]:
    return tiny.trace(pipeline=PIPELINE, counters=queues(**depths)).data_pipeline()["verdict"].to_list()


def test_an_operator_between_a_full_and_an_empty_queue_is_the_bottleneck() -> None:
    tiny.assert_rows(
        tiny.trace(pipeline=PIPELINE, counters=queues(op1=[0, 0], op2=[0, 1], op3=[10, 8])).data_pipeline(),
        """
        rank  op_id  op_type      samples  queue_depth  queue_share  empty_share  full_share  verdict
        0     0      EpochCtrlOp  -        -            -            -            -           -
        0     1      BatchOp      2        0.0          0.0          1.0          0.0         "waits_for_input"
        0     2      MapOp        2        0.5          0.05         0.5          0.0         bottleneck
        0     3      GeneratorOp  2        9.0          0.9          0.0          0.5         "waits_for_its_reader"
        """,
    )


def test_the_operators_are_those_of_the_table() -> None:
    tiny.assert_rows(tiny.trace(pipeline=PIPELINE).data_pipeline(), PIPELINE)


def test_if_every_queue_is_empty_the_operator_that_reads_from_storage_is_the_bottleneck() -> None:
    assert verdicts(op1=[0], op2=[0], op3=[1]) == [None, "waits for input", "waits for input", "bottleneck"]


def test_where_every_queue_but_the_last_is_full_the_last_operator_is_the_bottleneck() -> None:
    assert verdicts(op1=[0], op2=[9], op3=[10]) == [None, "bottleneck", "waits for its reader", "waits for its reader"]


def test_where_every_queue_is_full_nothing_holds_the_training_up() -> None:
    assert verdicts(op1=[10], op2=[9], op3=[10]) == [None, "keeps up", "waits for its reader", "waits for its reader"]


def test_an_operator_with_rows_in_stock_keeps_up_though_its_input_is_empty() -> None:
    assert verdicts(op1=[7], op2=[0], op3=[1])[1] == "keeps up"


def test_the_bottleneck_has_advice_for_its_kind() -> None:
    hints = tiny.trace(pipeline=PIPELINE, counters=queues(op1=[0], op2=[0], op3=[1])).data_pipeline()["hint"].to_list()
    assert hints[:3] == [None, None, None]
    assert "MindRecord" in hints[3]


def test_operators_without_a_queue_pass_on_the_rows_that_they_read() -> None:
    pipeline = """
        op_id  op_type    workers  parent  queue_capacity
        1      BatchOp    1        -       10
        2      RepeatOp   1        1       -
        3      TFReader   1        2       10
        4      TFReader   1        2       10
    """
    found = tiny.trace(pipeline=pipeline, counters=queues(op1=[0], op3=[10], op4=[9])).data_pipeline()
    assert found["verdict"].to_list() == ["bottleneck", None, "waits for its reader", "waits for its reader"]


def test_cpu_use_and_the_time_of_a_batch_belong_to_their_operators() -> None:
    counters = """
        name                   at_ns  value  unit
        "queue_1_BatchOp"      0      5      rows
        "cpu_user_2_MapOp"     0      40     percent
        "cpu_user_2_MapOp"     1      20     percent
        "cpu_system_2_MapOp"   0      10     percent
        "queue_iterator"       0      0      rows
        "batch_time_iterator"  0      3      ms
        "batch_time_iterator"  1      5      ms
    """
    tiny.assert_rows(
        tiny.trace(pipeline=PIPELINE, counters=counters).data_pipeline(),
        """
        op_id  samples  queue_share  user_share  system_share  batch_ns
        0      -        -            -           -             -
        1      1        0.5          -           -             4000000
        2      0        -            0.3         0.1           -
        3      -        -            -           -             -
        """,
    )


def test_a_data_loader_has_the_cpu_use_of_its_workers() -> None:
    pipeline = """
        op_id  op_type     workers  queue_capacity
        0      DataLoader  2        4
        1      DataLoader  0        0
    """
    counters = """
        name                        at_ns  value  unit
        "cpu_cores"                 0      4      cores
        "data_worker_8_cpu_user"    5      1.0    cores
        "data_worker_8_cpu_user"    9      0.6    cores
        "data_worker_9_cpu_user"    5      0.8    cores
        "data_worker_9_cpu_system"  5      0.4    cores
        "queue_0_depth"             5      0      batches
        "queue_0_depth"             9      1      batches
        "queue_0_wait"              5      30     ns
        "queue_0_wait"              9      10     ns
        "queue_1_wait"              6      50     ns
    """
    found = tiny.trace(pipeline=pipeline, counters=counters).data_pipeline()
    tiny.assert_rows(
        found,
        """
        op_id  op_type     samples  queue_share  empty_share  user_share  system_share  batch_ns  verdict
        0      DataLoader  2        0.125        0.5          0.4         0.1           20        bottleneck
        1      DataLoader  0        -            -            -           -             50        -
        """,
    )
    assert [hint.split()[0] for hint in found["hint"]] == ["raise", "num_workers"]


def test_minddatas_own_files_give_its_own_averages(shared: Path) -> None:
    folder = shared / "mindspore_cpu" / "minddata"
    counters = pl.concat(minddata.counters(folder, {}, []))
    trace = Trace({"pipeline": minddata.pipeline(folder).with_columns(rank=0), "counters": counters.with_columns(rank=0)})
    found = {row["op_id"]: row for row in trace.data_pipeline().iter_rows(named=True)}
    output = json.loads((folder / "pipeline_profiling_0.json").read_text())["op_info"]
    for operator in output:
        queue = (operator["metrics"] or {}).get("output_queue")
        if queue:
            assert found[operator["op_id"]]["queue_depth"] == sum(queue["size"]) / len(queue["size"])
    assert [row["op_type"] for row in found.values() if row["verdict"] == "bottleneck"] == ["MapOp"]


def test_a_trace_without_a_pipeline_gives_no_rows() -> None:
    assert Trace({}).data_pipeline().is_empty()


def test_more_workers_are_advised_only_where_the_machine_has_cores_for_them() -> None:
    """Else the page on the CPU, which says that they would compete, contradicts it."""

    def hints(busy: float) -> list[str]:
        machine = f"""
        "cpu_cores"   0          2       cores
        "run_queue"   0          1       processes
        "cpu_user"    900000000  {busy}  share
        "cpu_system"  900000000  0.05    share
        """
        found = []
        for depths in ({"op1": [0], "op2": [0], "op3": [10]}, {"op1": [0], "op2": [0], "op3": [0]}):
            table = tiny.trace(pipeline=PIPELINE, counters=queues(**depths) + machine.rstrip()).data_pipeline()
            found += table.filter(pl.col("verdict") == "bottleneck")["hint"].to_list()
        return found

    assert all("raise num_parallel_workers" in hint for hint in hints(0.5))
    assert len(hints(0.9)) == len(hints(0.5)) == 2
    assert all(hint.startswith("all cores are busy, more workers would compete for them: ") and "raise" not in hint for hint in hints(0.9))


def test_every_hint_of_the_catalog_is_used_and_has_a_sentence() -> None:
    module = importlib.import_module("stepscope.analyses.input.data_pipeline")
    codes = {code for codes in module._HINTS.values() for code in codes} | {"hint-workers", "hint-no-workers"}
    assert {code for code in catalog("en") if code.startswith("hint-")} == codes
