"""How much CPU do the machine, the processes and the input pipeline use?"""

import polars as pl

from stepscope.model.columns.counters import OWNER
from stepscope.model.parameters import check_word
from stepscope.model.steps.windows import with_windows
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "of": pl.String,  # machine, process, operator (of the input pipeline)
    "name": pl.String,  # machine; process, data worker or child with its number; number and type of the operator
    "at_ns": pl.Int64,  # the end of the interval
    "interval_ns": pl.Int64,  # since the previous row; null for the first
    "user_share": pl.Float64,  # of the CPU time of all cores since the last row with a share
    "system_share": pl.Float64,
    "io_share": pl.Float64,  # idle while a process waits for a disk
    "idle_share": pl.Float64,
    "steal_share": pl.Float64,  # taken by other virtual machines
    "busy_cores": pl.Float64,  # user and system together, in cores
    "context_switches_per_s": pl.Float64,
    "run_queue": pl.Float64,  # processes that run or are ready to run
    "threads": pl.Float64,
    "memory_bytes": pl.Int64,  # in use by the machine, or resident memory of the process
}
KINDS = ("machine", "process", "operator")  # values of `of`
_MACHINE = {
    "cpu user": "user_share",
    "cpu system": "system_share",
    "cpu io": "io_share",
    "cpu idle": "idle_share",
    "cpu steal": "steal_share",
    "run queue": "run_queue",
    "context switches": "context_switches_per_s",
    "memory used": "memory_bytes",
}
_PROCESS = {
    "cpu user": "user_share",
    "cpu system": "system_share",
    "memory": "memory_bytes",
    "threads": "threads",
    "voluntary switches": "voluntary",
    "involuntary switches": "involuntary",
}
_PROCESSES = ("process", "data worker", "child")


def cpu(trace: Trace, *, of: str | None = None) -> pl.DataFrame:
    """Every sample of the machine, of each process and of each pipeline operator. `of` selects one of these kinds.

    If the input is slow, low user time suggests more workers; high system time, many context switches and a long run queue suggest fewer.
    """
    if of is not None:
        check_word("kind of sample", of, KINDS)
    owner, series = pl.col("owner").cast(pl.String), pl.col("series").cast(pl.String)
    label = pl.col("name").cast(pl.String).str.strip_prefix(series + " ")  # of an operator: its number and type
    kinds = (
        ("machine", owner.is_null(), _MACHINE, pl.lit("machine")),
        ("process", owner.is_in(_PROCESSES), _PROCESS, OWNER),
        ("operator", owner == "operator", {name: _MACHINE[name] for name in ("cpu user", "cpu system")}, label),
    )
    samples = pl.concat(
        trace.counters.filter(selected, series.is_in(list(columns))).select(
            "rank", "at_ns", "value", pl.col("unit").cast(pl.String), of=pl.lit(kind), name=name, column=series.replace(columns)
        )
        for kind, selected, columns, name in kinds
        if of in (None, kind)
    ).collect()
    cores = core_counts(trace)
    shares = pl.col("column").is_in(["user_share", "system_share"])
    value = (
        pl.when(shares & (pl.col("unit") == "cores"))
        .then(pl.col("value") / pl.col("cores"))
        .when(pl.col("unit") == "percent")
        .then(pl.col("value") / 100)
        .otherwise("value")
    )
    key = ["rank", "of", "name", "at_ns"]
    wide = samples.join(cores, on="rank", how="left").with_columns(value=value).group_by(*key, "cores").agg(
        pl.col("value").filter(pl.col("column") == column).first().alias(column)
        for column in dict.fromkeys([*_MACHINE.values(), *_PROCESS.values()])
    )  # fmt: skip
    switches = pl.coalesce("context_switches_per_s", pl.col("voluntary") + pl.col("involuntary"))
    order = pl.col("of").replace_strict({"machine": 0, "process": 1, "operator": 2}, return_dtype=pl.Int8)
    return (
        with_windows(wide.sort("rank", order, "name", "at_ns"), trace.meta, "at_ns")
        .with_columns(
            interval_ns=pl.col("at_ns").diff().over("rank", "of", "name", "window"),
            # If user or system time is not recorded, all time that is neither idle nor waiting for a disk is busy.
            busy_cores=pl.coalesce(
                pl.col("user_share") + pl.col("system_share"), 1 - pl.col("idle_share") - pl.col("io_share").fill_null(0.0)
            )
            * pl.col("cores"),
            context_switches_per_s=switches,
        )
        .select(
            # A sample may be out of the range of bytes.
            (pl.col(name).round() if dtype == pl.Int64 else pl.col(name)).cast(dtype, strict=False)
            for name, dtype in COLUMNS.items()
        )
    )


def core_counts(trace: Trace) -> pl.DataFrame:
    """The cores of the machine of each rank."""
    cores = trace.counters.filter(pl.col("name").cast(pl.String) == "cpu cores").group_by("rank").agg(cores=pl.col("value").max())
    return cores.collect()
