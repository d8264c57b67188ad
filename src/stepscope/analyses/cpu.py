"""What do the machine, the processes and the input pipeline use of the CPU?"""

import polars as pl

from stepscope.parameters import check_word
from stepscope.trace import Trace
from stepscope.trace_windows import with_windows

COLUMNS = {
    "rank": pl.Int32,
    "of": pl.String,  # machine, process, operator (of the input pipeline)
    "name": pl.String,  # machine; process, data worker or child with its number; the operator's number and type
    "at_ns": pl.Int64,  # the end of the time that a row is about
    "interval_ns": pl.Int64,  # since the row before; null for the first
    "user_share": pl.Float64,  # of the CPU time of all cores since the last row that has a share
    "system_share": pl.Float64,
    "io_share": pl.Float64,  # idle while something waits for a disk
    "idle_share": pl.Float64,
    "steal_share": pl.Float64,  # taken by other virtual machines
    "busy_cores": pl.Float64,  # user and system together, in cores
    "context_switches_per_s": pl.Float64,
    "run_queue": pl.Float64,  # processes that run or could, at that moment
    "threads": pl.Float64,
    "memory_bytes": pl.Int64,  # in use by the machine, or in memory of the process
}
_NAMES = (
    ("machine", r"^cpu (user|system|io|idle|steal)$", ""),
    ("machine", r"^(run queue|context switches|memory used)$", ""),
    ("process",
     r"^(?:process|(?:process|data worker|child) \d+) (cpu user|cpu system|memory|threads|voluntary switches|involuntary switches)$",
     r"^((?:process|data worker|child) \d+|process) "),
    ("operator", r"^cpu (user|system) \d+(?: .*)?$", r"^cpu (?:user|system) (.*)$"),
)  # fmt: skip
KINDS = ("machine", "process", "operator")  # that `of` keeps
_COLUMN_OF = {
    "user": "user_share",
    "system": "system_share",
    "io": "io_share",
    "idle": "idle_share",
    "steal": "steal_share",
    "cpu user": "user_share",
    "cpu system": "system_share",
    "run queue": "run_queue",
    "context switches": "context_switches_per_s",
    "voluntary switches": "voluntary",
    "involuntary switches": "involuntary",
    "memory used": "memory_bytes",
    "memory": "memory_bytes",
    "threads": "threads",
}


def cpu(trace: Trace, *, of: str | None = None) -> pl.DataFrame:
    """Every sample of the machine, of each process and of each pipeline operator. `of` keeps one of these kinds.

    Low user time where the input is slow: more workers. High system time, many context switches and a long run queue: fewer.
    """
    if of is not None:
        check_word("kind of sample", of, KINDS)
    words = trace.counters.select("name").unique().collect()
    text = pl.col("name").cast(pl.String)
    known = pl.concat(
        words.with_columns(
            of=pl.lit(kind),
            word=text.str.extract(pattern),
            owner=text.str.extract(owner) if owner else pl.lit(kind, pl.String),
        ).filter(pl.col("word").is_not_null())
        for kind, pattern, owner in _NAMES
    )
    samples = (
        trace.counters.join(known.lazy().filter(True if of is None else pl.col("of") == of), on="name")
        .select("rank", "of", "at_ns", "value", pl.col("unit").cast(pl.String), name="owner", column=pl.col("word").replace(_COLUMN_OF))
        .collect()
    )
    cores = trace.counters.filter(pl.col("name").cast(pl.String) == "cpu cores").group_by("rank").agg(cores=pl.col("value").max()).collect()
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
        *(pl.col("value").filter(pl.col("column") == column).first().alias(column) for column in dict.fromkeys(_COLUMN_OF.values()))
    )  # fmt: skip
    switches = pl.coalesce("context_switches_per_s", pl.col("voluntary") + pl.col("involuntary"))
    order = pl.col("of").replace_strict({"machine": 0, "process": 1, "operator": 2}, return_dtype=pl.Int8)
    return (
        with_windows(wide.sort("rank", order, "name", "at_ns"), trace.meta, "at_ns")
        .with_columns(
            interval_ns=pl.col("at_ns").diff().over("rank", "of", "name", "window"),
            # Where user or system time is not recorded, what is neither idle nor waiting for a disk is busy.
            busy_cores=pl.coalesce(
                pl.col("user_share") + pl.col("system_share"), 1 - pl.col("idle_share") - pl.col("io_share").fill_null(0.0)
            )
            * pl.col("cores"),
            context_switches_per_s=switches,
        )
        .select(
            # A sample may be any number, also one that no count of bytes can be.
            (pl.col(name).round() if dtype == pl.Int64 else pl.col(name)).cast(dtype, strict=False)
            for name, dtype in COLUMNS.items()
        )
    )
