import polars as pl

import stepscope
import tiny
from stepscope.cli.setup.demo import RECORDING
from stepscope.model.trace import Trace

# The machine is idle up to 100 ms, then half busy for three times as long. The first sample of the process says nothing of shares.
COUNTERS = """
    name                     at_ns      value  unit
    "cpu_cores"              0          4      cores
    "run_queue"              0          3      processes
    "process_77_memory"      0          500    bytes
    "cpu_user"               100000000  0.0    share
    "cpu_system"             100000000  0.0    share
    "cpu_idle"               100000000  1.0    share
    "run_queue"              100000000  1      processes
    "process_77_cpu_user"    100000000  1.0    cores
    "process_77_cpu_system"  100000000  0.0    cores
    "process_77_memory"      100000000  900    bytes
    "process_77_threads"     100000000  6      threads
    "run_queue"              150000000  2      processes
    "cpu_user"               400000000  0.4    share
    "cpu_system"             400000000  0.2    share
    "cpu_idle"               400000000  0.4    share
    "context_switches"       400000000  9000   1/s
    "process_77_cpu_user"    400000000  2.0    cores
    "process_77_cpu_system"  400000000  1.0    cores
    "process_77_memory"      400000000  700    bytes
    "cpu_user_3_MapOp"       90000000   25     percent
    "cpu_system_3_MapOp"     90000000   5      percent
"""


def test_means_weigh_each_share_by_its_time_and_the_rows_have_the_maxima() -> None:
    # Machine, from 0: (100 * 0 + 300 * 0.4) / 400 = 0.3 user, in ms. Its process used 2.5 cores, its ticks show 1.8: 0.7 of 4 cores, 0.175,
    # were user time and not idle. The operator's single sample is about an unknown time.
    tiny.assert_rows(
        tiny.trace(counters=COUNTERS).cpu_use(),
        """
        of        name          samples  covered_ns  cores  busy_cores  max_busy_cores  user_share  system_share  idle_share  run_queue
        machine   machine       2        400000000   4.0    2.5         2.5             0.475       0.15          0.375       2.0
        process   "process_77"  2        400000000   4.0    2.5         3.0             0.4375      0.1875        -           -
        operator  "3_MapOp"     1        0           4.0    1.2         1.2             0.25        0.05          -           -
        """,
    )


def test_shares_counted_in_ticks_of_ten_milliseconds_are_unknown_below_two_ticks() -> None:
    """Shares of such a time would be 0, a half or all. The process's own time is finer, and so are counts of other things."""
    counters = """
        name                        at_ns     value  unit
        "cpu_cores"                 0         2      cores
        "run_queue"                 0         1      processes
        "process_77_threads"        0         4      threads
        "data_worker_78_threads"    0         1      threads
        "run_queue"                 19000000  3      processes
        "cpu_user"                  19000000  0.0    share
        "cpu_system"                19000000  0.0    share
        "cpu_idle"                  19000000  1.0    share
        "process_77_cpu_user"       19000000  0.5    cores
        "process_77_cpu_system"     19000000  0.0    cores
        "data_worker_78_cpu_user"   19000000  0.0    cores
        "data_worker_78_cpu_system" 19000000  0.0    cores
    """
    tiny.assert_rows(
        tiny.trace(counters=counters).cpu_use(),
        """
        name              samples  covered_ns  busy_cores  max_busy_cores  user_share  idle_share  max_run_queue
        machine           1        19000000    -           -               -           -           3.0
        "data_worker_78"  1        19000000    -           -               -           -           -
        "process_77"      1        19000000    0.5         0.5             0.25        -           -
        """,
    )
    longer = counters.replace("19000000", "20000000")
    assert tiny.trace(counters=longer).cpu_use()["busy_cores"].to_list() == [0.5, 0.0, 0.5]


def test_figures_without_shares_are_the_mean_or_the_maximum_of_the_samples() -> None:
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
        tiny.trace(counters=COUNTERS).cpu_use(start_ns=101_000_000, end_ns=400_000_000),
        """
        of       name          samples  covered_ns  busy_cores  user_share  run_queue  max_memory_bytes
        machine  machine       1        300000000         3.0         0.55        2.0        -
        process  "process_77"  1        300000000         3.0         0.5         -          700
        """,
    )
    assert tiny.trace(counters=COUNTERS).cpu_use(start_ns=500_000_000).is_empty()


def test_a_trace_without_counters_gives_no_rows() -> None:
    assert Trace({}).cpu_use().is_empty()


def test_the_machine_is_judged_by_its_cores_then_by_its_disks_then_by_its_run_queue() -> None:
    def verdict(user: float, io: float, queue: int) -> str | None:
        counters = f"""
            name          at_ns      value   unit
            "cpu_cores"   0          2       cores
            "run_queue"   0          1       processes
            "cpu_user"    900000000  {user}  share
            "cpu_system"  900000000  0.05    share
            "cpu_io"      900000000  {io}    share
            "run_queue"   900000000  {queue} processes
        """
        found: str | None = tiny.trace(counters=counters).cpu_use(of="machine")["verdict"].item()
        return found

    assert verdict(0.9, 0.3, 9) == "full"
    assert verdict(0.7, 0.16, 9) == "waits for disks"
    assert verdict(0.7, 0.15, 5) == "crowded"
    assert verdict(0.7, 0.15, 4) == "free"
    assert tiny.trace(counters=COUNTERS).cpu_use()["verdict"].to_list() == ["free", None, None]


def test_a_machine_uses_at_least_as_much_as_its_processes() -> None:
    # In 100 ms of 4 cores the ticks show 0.8 busy cores; the process, counted exactly, used 1.0: 0.2 cores are 0.05 of the machine.
    trace = tiny.trace(
        counters="""
            name                     at_ns      value  unit
            "cpu_cores"              0          4      cores
            "run_queue"              0          1      processes
            "process_77_memory"      0          900    bytes
            "cpu_user"               100000000  0.2    share
            "cpu_system"             100000000  0.0    share
            "cpu_idle"               100000000  0.8    share
            "process_77_cpu_user"    100000000  0.9    cores
            "process_77_cpu_system"  100000000  0.1    cores
        """
    )
    for of in (None, "machine"):
        machine = trace.cpu_use(of=of).row(0, named=True)
        assert [round(machine[name], 6) for name in ("busy_cores", "max_busy_cores", "user_share", "system_share", "idle_share")] == [
            1.0, 1.0, 0.25, 0.0, 0.75,
        ]  # fmt: skip
    assert trace.cpu_use(of="process")["busy_cores"].to_list() == [1.0]


def test_the_demo_has_no_process_busier_than_its_machine() -> None:
    uses = stepscope.open(RECORDING).cpu_use()
    most = uses.filter(pl.col("of") == "process")["busy_cores"].max()
    assert uses.filter(pl.col("of") == "machine")["busy_cores"].item() >= most > 1.05
