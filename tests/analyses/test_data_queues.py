import tiny
from stepscope.model.trace import Trace

STEPS = """
    step  start_ns  end_ns
    1     0         100
    2     100       200
    3     300       400
"""
LOADER = """
    name             at_ns  value  unit
    "queue_0_depth"  5      0      batches
    "queue_0_wait"   5      40     ns
    "queue_0_depth"  50     0      batches
    "queue_0_wait"   50     20     ns
    "queue_0_depth"  100    4      batches
    "queue_0_wait"   100    1      ns
    "queue_0_depth"  150    2      batches
    "queue_0_wait"   150    2      ns
    "queue_0_depth"  250    3      batches
    "queue_0_wait"   250    3      ns
    "queue_0_depth"  399    4      batches
    "queue_0_wait"   399    1      ns
"""
LOADERS = """
    op_id  op_type     workers  queue_capacity
    0      DataLoader  2        4
"""


def test_a_step_waits_when_no_batch_was_ready() -> None:
    tiny.assert_rows(
        tiny.trace(counters=LOADER, steps=STEPS, pipeline=LOADERS).data_queues(),
        """
        rank  queue           step  batches  depth  capacity  empty  full  wait_ns  verdict
        0     "DataLoader_0"  1     2        0.0    4         2      0     60       "waits_for_processing"
        0     "DataLoader_0"  2     2        3.0    4         0      1     3        ready
        0     "DataLoader_0"  3     1        4.0    4         0      1     1        full
        0     "DataLoader_0"  -     1        3.0    4         0      0     3        ready
        """,
    )


def test_the_whole_recording_is_one_row_per_queue() -> None:
    tiny.assert_rows(
        tiny.trace(counters=LOADER, steps=STEPS, pipeline=LOADERS).data_queues(per_step=False),
        """
        queue           step  batches  depth     capacity  empty  full  wait_ns  verdict
        "DataLoader_0"  -     6        2.166667  4         2      2     67       "waits_for_processing"
        """,
    )


def test_a_loader_without_workers_has_waits_but_no_queue() -> None:
    counters = """
        name            at_ns  value  unit
        "queue_1_wait"  5      40     ns
    """
    pipeline = """
        op_id  op_type     workers  queue_capacity
        1      DataLoader  0        0
    """
    tiny.assert_rows(
        tiny.trace(counters=counters, steps=STEPS, pipeline=pipeline).data_queues(),
        """
        queue           step  batches  depth  capacity  empty  full  wait_ns  verdict
        "DataLoader_1"  1     1        -      0         -      -     40       "no_queue"
        """,
    )


def test_minddatas_iterator_reads_the_queue_nearest_the_root() -> None:
    counters = """
        name                      at_ns  value  unit
        "queue_iterator"          5      0      rows
        "pipeline_time_iterator"  5      2      ms
        "batch_time_iterator"     5      3      ms
        "queue_iterator"          120    16     rows
        "pipeline_time_iterator"  120    0      ms
        "queue_1_BatchOp"         120    9      rows
    """
    pipeline = """
        op_id  op_type      workers  parent  queue_capacity
        0      EpochCtrlOp  1        -       -
        1      BatchOp      1        0       16
        2      GeneratorOp  1        1       32
    """
    tiny.assert_rows(
        tiny.trace(counters=counters, steps=STEPS, pipeline=pipeline).data_queues(),
        """
        queue     step  batches  depth  capacity  empty  full  wait_ns  verdict
        iterator  1     1        0.0    16        1      0     2000000  "waits_for_processing"
        iterator  2     1        16.0   16        0      1     0        full
        """,
    )


def test_an_empty_queue_on_the_device_is_the_transfers_fault_where_the_host_had_rows() -> None:
    counters = """
        name                  at_ns  value  unit
        "queue_device_queue"  5      9      rows
        "queue_device"        5      0      rows
        "queue_device_queue"  105    0      rows
        "queue_device"        105    0      rows
        "queue_device_queue"  305    0      rows
        "queue_device"        305    3      rows
    """
    tiny.assert_rows(
        tiny.trace(counters=counters, steps=STEPS).data_queues(),
        """
        queue           step  depth  verdict
        device          1     0.0    "waits_for_transfer"
        device          2     0.0    "waits_for_processing"
        device          3     3.0    ready
        "device_queue"  1     9.0    ready
        "device_queue"  2     0.0    "waits_for_processing"
        "device_queue"  3     0.0    "waits_for_processing"
        """,
    )


def test_ranks_have_steps_and_queues_of_their_own() -> None:
    counters = """
        rank  name             at_ns  value  unit
        0     "queue_0_depth"  5      0      batches
        1     "queue_0_depth"  5      2      batches
    """
    steps = """
        rank  step  start_ns  end_ns
        0     7     0         10
        1     8     0         10
    """
    tiny.assert_rows(
        tiny.trace(counters=counters, steps=steps).data_queues(),
        """
        rank  step  depth  verdict
        0     7     0.0    "waits_for_processing"
        1     8     2.0    ready
        """,
    )


def test_a_trace_without_queues_gives_no_rows() -> None:
    assert Trace({}).data_queues().is_empty()
    assert tiny.trace(steps=STEPS).data_queues(per_step=False).is_empty()
