import polars as pl
import pytest

import tiny
from stepscope.model.trace import Trace

COUNTERS = """
    name                          at_ns  value  unit
    "cpu_cores"                   0      4      cores
    "run_queue"                   0      3      processes
    "memory_used"                 0      1000   bytes
    "process_77_memory"           0      500    bytes
    "run_queue"                   100    5      processes
    "cpu_user"                    100    0.5    share
    "cpu_system"                  100    0.25   share
    "cpu_io"                      100    0.05   share
    "cpu_idle"                    100    0.15   share
    "cpu_steal"                   100    0.05   share
    "context_switches"            100    9000   1/s
    "memory_used"                 100    2000   bytes
    "process_77_cpu_user"         100    2.0    cores
    "process_77_cpu_system"       100    1.0    cores
    "process_77_memory"           100    700    bytes
    "process_77_threads"          100    6      threads
    "process_77_voluntary_switches"    100  10  1/s
    "process_77_involuntary_switches"  100  2   1/s
    "data_worker_78_cpu_user"     100    0.8    cores
    "data_worker_78_cpu_system"   100    0.2    cores
    "cpu_user_3_MapOp"            90     25     percent
    "cpu_system_3_MapOp"          90     5      percent
    "cpu_user_3_MapOp"            140    35     percent
    "cpu_system_3_MapOp"          140    0      percent
    "memory_used_gpu_0"           100    7      bytes
    "queue_3_MapOp"               90     1      rows
"""


def test_the_machine_its_processes_and_the_operators_are_rows_of_their_own() -> None:
    tiny.assert_rows(
        tiny.trace(counters=COUNTERS).cpu(),
        """
        rank  of        name              at_ns  interval_ns  user_share  system_share  io_share  idle_share  steal_share
        0     machine   machine           0      -            -           -             -         -           -
        0     machine   machine           100    100          0.5         0.25          0.05      0.15        0.05
        0     process   "data_worker_78"  100    -            0.2         0.05          -         -           -
        0     process   "process_77"      0      -            -           -             -         -           -
        0     process   "process_77"      100    100          0.5         0.25          -         -           -
        0     operator  "3_MapOp"         90     -            0.25        0.05          -         -           -
        0     operator  "3_MapOp"         140    50           0.35        0.0           -         -           -
        """,
    )


def test_busy_cores_and_other_figures_are_in_the_rows_of_the_shares() -> None:
    tiny.assert_rows(
        tiny.trace(counters=COUNTERS).cpu(),
        """
        name              at_ns  busy_cores  context_switches_per_s  run_queue  threads  memory_bytes
        machine           0      -           -                       3.0        -        1000
        machine           100    3.0         9000.0                  5.0        -        2000
        "data_worker_78"  100    1.0         -                       -          -        -
        "process_77"      0      -           -                       -          -        500
        "process_77"      100    3.0         12.0                    -          6.0      700
        "3_MapOp"         90     1.2         -                       -          -        -
        "3_MapOp"         140    1.4         -                       -          -        -
        """,
    )


@pytest.mark.parametrize(("of", "rows"), [("machine", 2), ("process", 3), ("operator", 2)])
def test_one_kind_can_be_selected(of: str, rows: int) -> None:
    found = tiny.trace(counters=COUNTERS).cpu(of=of)
    assert found["of"].to_list() == [of] * rows


def test_without_a_count_of_cores_the_busy_cores_are_unknown() -> None:
    counters = """
        name          at_ns  value  unit
        "cpu_user"    100    0.5    share
        "cpu_system"  100    0.25   share
    """
    tiny.assert_rows(
        tiny.trace(counters=counters).cpu(),
        """
        of       user_share  busy_cores
        machine  0.5         -
        """,
    )


def test_ranks_on_machines_of_different_size_are_kept_apart() -> None:
    counters = """
        rank  name                   at_ns  value  unit
        0     "cpu_cores"            0      2      cores
        1     "cpu_cores"            0      8      cores
        0     "process_5_cpu_user"   100    1.0    cores
        1     "process_5_cpu_user"   100    1.0    cores
    """
    tiny.assert_rows(
        tiny.trace(counters=counters).cpu(),
        """
        rank  name         user_share
        0     "process_5"  0.5
        1     "process_5"  0.125
        """,
    )


def test_a_trace_without_counters_gives_no_rows() -> None:
    assert Trace({}).cpu().is_empty()
    assert tiny.trace(counters="name at_ns value unit\nother 1 2 bytes").cpu(of="machine").schema == pl.Schema(Trace({}).cpu().schema)
