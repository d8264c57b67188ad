import tiny

PIPELINE = """
    op_id  op_type      parent  queue_capacity
    0      EpochCtrlOp  -       -
    1      BatchOp      0       4
    2      GeneratorOp  1       16
"""
COUNTERS = """
    name                  at_ns  value  unit
    "queue_2_GeneratorOp" 5      12     rows
    "queue_2_GeneratorOp" 15     16     rows
    "queue_iterator"      12     3      rows
    "cpu_user_2"          12     7      percent
"""
STEPS = """
    step  start_ns  end_ns
    1     10        20
"""


def test_each_sample_has_its_queue_its_step_and_its_capacity() -> None:
    tiny.assert_rows(
        tiny.trace(pipeline=PIPELINE, counters=COUNTERS, steps=STEPS).queue_samples(),
        """
        rank  queue         op_id  step  at_ns  depth  capacity
        0     iterator      1      1     12     3.0    4
        0     "operator_2"  2      -     5      12.0   16
        0     "operator_2"  2      1     15     16.0   16
        """,
    )


def test_one_operator_can_be_selected() -> None:
    assert tiny.trace(pipeline=PIPELINE, counters=COUNTERS, steps=STEPS).queue_samples(op=2)["depth"].to_list() == [12, 16]


def test_a_loader_is_named_as_in_data_queues() -> None:
    counters = """
        name             at_ns  value  unit
        "queue_0_depth"  12     2      batches
        "queue_0_wait"   12     900    ns
    """
    pipeline = """
        op_id  op_type     parent  queue_capacity
        0      DataLoader  -       4
    """
    tiny.assert_rows(
        tiny.trace(pipeline=pipeline, counters=counters).queue_samples(),
        """
        queue           op_id  step  at_ns  depth  capacity
        "DataLoader_0"  0      -     12     2.0    4
        """,
    )
