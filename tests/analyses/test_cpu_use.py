import tiny
from stepscope.trace import Trace

# The machine is idle up to 100, then half busy for three times as long. The first sample of the process says nothing of shares.
COUNTERS = """
    name                     at_ns  value  unit
    "cpu_cores"              0      4      cores
    "run_queue"              0      3      processes
    "process_77_memory"      0      500    bytes
    "cpu_user"               100    0.0    share
    "cpu_system"             100    0.0    share
    "cpu_idle"               100    1.0    share
    "run_queue"              100    1      processes
    "process_77_cpu_user"    100    1.0    cores
    "process_77_cpu_system"  100    0.0    cores
    "process_77_memory"      100    900    bytes
    "process_77_threads"     100    6      threads
    "run_queue"              150    2      processes
    "cpu_user"               400    0.4    share
    "cpu_system"             400    0.2    share
    "cpu_idle"               400    0.4    share
    "context_switches"       400    9000   1/s
    "process_77_cpu_user"    400    2.0    cores
    "process_77_cpu_system"  400    1.0    cores
    "process_77_memory"      400    700    bytes
    "cpu_user_3_MapOp"       90     25     percent
    "cpu_system_3_MapOp"     90     5      percent
"""


def test_means_weigh_each_share_by_its_time_and_the_largest_values_stand_beside_them() -> None:
    # Machine, from 0: (100 * 0 + 300 * 0.4) / 400 = 0.3 user. The operator's single sample is about an unknown time.
    tiny.assert_rows(
        tiny.trace(counters=COUNTERS).cpu_use(),
        """
        of        name          samples  covered_ns  cores  busy_cores  max_busy_cores  user_share  system_share  idle_share  run_queue
        machine   machine       2        400         4.0    1.8         2.4             0.3         0.15          0.55        2.0
        process   "process_77"  2        400         4.0    2.5         3.0             0.4375      0.1875        -           -
        operator  "3_MapOp"     1        0           4.0    1.2         1.2             0.25        0.05          -           -
        """,
    )


def test_what_is_no_share_is_the_mean_or_the_largest_of_the_samples() -> None:
    tiny.assert_rows(
        tiny.trace(counters=COUNTERS).cpu_use(of="machine"),
        """
        name     io_share  steal_share  context_switches_per_s  max_run_queue  max_threads  max_memory_bytes
        machine  -         -            9000.0                  3.0            -            -
        """,
    )
    tiny.assert_rows(
        tiny.trace(counters=COUNTERS).cpu_use(of="process"),
        """
        name          max_run_queue  max_threads  max_memory_bytes
        "process_77"  -              6.0          900
        """,
    )


def test_a_range_of_time_keeps_the_samples_taken_in_it_with_the_time_they_are_about() -> None:
    tiny.assert_rows(
        tiny.trace(counters=COUNTERS).cpu_use(start_ns=101, end_ns=400),
        """
        of       name          samples  covered_ns  busy_cores  user_share  run_queue  max_memory_bytes
        machine  machine       1        300         2.4         0.4         2.0        -
        process  "process_77"  1        300         3.0         0.5         -          700
        """,
    )
    assert tiny.trace(counters=COUNTERS).cpu_use(start_ns=500).is_empty()


def test_a_trace_without_counters_gives_no_rows() -> None:
    assert Trace({}).cpu_use().is_empty()
