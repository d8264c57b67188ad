"""Traces of StragglerAnalysis (ByteDance): the operations of all ranks of a pipeline-parallel job, in one Parquet file.

Seconds since the start of each step: the file has no time between steps, so each step begins where the one before it ends. The sizes of
the job are in `meta-NAME.yaml` beside `trace-NAME.parquet`; one rank is recorded of the ranks that share a stage and a replica.
"""

import re
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import DataError
from stepscope.model.trace import Meta, Trace, complete
from stepscope.readers import Options
from stepscope.readers.ascend.common.tables import report_lost
from stepscope.readers.common.documents import OUTSIDE_LINK, is_inside_folder
from stepscope.readers.common.problems import Problem, problem_frame

FORMAT = "StragglerAnalysis Parquet"
_COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id", "gmc")
_KINDS = {"forward-compute": "kernel", "backward-compute": "kernel", "optimizer": "kernel", "gc": "python"}
_TRACKS = ("computation", "forward-send", "forward-recv", "backward-send", "backward-recv", "collectives", "garbage collection", "steps")
# Collectives of the replicas of a stage. Of the other groups one rank is recorded, or two stages whose records do not end together.
_OF_STAGE = ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce")
_LONGEST_S = 1e6
_HEAD = b"PAR1"


def sniff(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(len(_HEAD)) != _HEAD:
            return False
    try:
        return set(_COLUMNS) <= set(pl.read_parquet_schema(path))
    except (pl.exceptions.PolarsError, OSError):
        return False


def read(path: Path, options: Options) -> Trace:
    try:
        file = pl.read_parquet(path, columns=list(_COLUMNS), glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(path, f"not a readable Parquet file: {str(error).splitlines()[0]}") from error
    problems: list[Problem] = []
    rows = _valid_rows(file, problems)
    if rows.is_empty():
        raise DataError(path, "no operation with a rank, a step, a start and a duration in it")
    sizes = _sizes(path, problems)
    rows = _on_one_clock(rows)
    problems.append(Problem("start_ts", "times start again at 0 in each step: the time between two steps is not in the file", 0))
    ranks = sorted(rows["rank"].unique())
    steps = _steps(rows)
    every = pl.concat([rows, _step_spans(steps)], how="diagonal").sort("start_ns", maintain_order=True)
    spans = pl.concat([complete(part) for part in every.partition_by("rank", maintain_order=True)])
    tables = {
        "spans": spans,
        "tracks": _tracks(spans),
        "steps": steps,
        "devices": pl.DataFrame({"rank": ranks, "device": 0, "kind": "gpu"}),
        "stage_operations": spans.filter(pl.col("kind") != "step").rename({"name": "operation"}),
        "problems": problem_frame(problems, path).with_columns(rank=pl.lit(ranks[0], pl.Int32)),
    }
    extra = {"job": sizes} | ({"sharded_replicas": sizes["dsp_size"]} if "dsp_size" in sizes else {})
    return Trace(tables, Meta(format="straggler_analysis", world_size=sizes.get("world_size"), ranks=ranks, extra=extra))


def beside(path: Path) -> list[Path]:
    return [file] if is_inside_folder(file := _meta_file(path)) else []


def _meta_file(path: Path) -> Path:
    return path.parent / f"{path.stem.replace('trace', 'meta', 1)}.yaml"


def _sizes(path: Path, problems: list[Problem]) -> dict[str, int]:
    """The whole numbers in the meta file: lines of `name: value`."""
    file = _meta_file(path)
    if not is_inside_folder(file):
        problems.append(Problem(file.name, OUTSIDE_LINK if file.is_symlink() else "missing: the size of the job is not known", 1))
        return {}
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem(file.name, f"not read ({error})", 1))
        return {}
    fields = (re.fullmatch(r"\s*(\w+_size)\s*:\s*([0-9]{1,9})\s*(#.*)?", line) for line in lines)
    return {field[1]: int(field[2]) for field in fields if field and int(field[2])}


def _valid_rows(file: pl.DataFrame, problems: list[Problem]) -> pl.DataFrame:
    whole = dict.fromkeys(("rank", "dp_rank", "stage", "step", "seq_id", "mc", "gmc", "mb_id"), pl.Int32)
    types: dict[Any, Any] = {**whole, "optype": pl.String, "start_ts": pl.Float64, "duration": pl.Float64}
    rows = file.cast(types, strict=False)
    time = pl.col("start_ts").is_between(0, _LONGEST_S) & pl.col("duration").is_between(0, _LONGEST_S)
    number = pl.col("rank").is_between(0, 2**24) & pl.col("step").is_between(0, 2**31 - 1) & (pl.col("stage") >= 0)
    valid = rows.filter((time & number & (pl.col("dp_rank") >= 0) & pl.col("optype").is_not_null()).fill_null(False))
    report_lost(problems, "rows", rows.height - valid.height, "row", "without a rank, a step, a start or a duration")
    once = valid.unique(["rank", "step", "optype", "seq_id"], keep="first", maintain_order=True)
    report_lost(problems, "rows", valid.height - once.height, "row", "recorded twice")
    return once


def _on_one_clock(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with the columns of spans, each step after the one before it."""
    lengths = rows.group_by("step").agg(length=(pl.col("start_ts") + pl.col("duration")).max()).sort("step")
    begins = lengths.with_columns(begin=pl.col("length").cum_sum() - pl.col("length")).select("step", "begin")
    name = pl.col("optype")
    transfer = pl.when(name.is_in(_TRACKS)).then(name.replace_strict({track: place for place, track in enumerate(_TRACKS)}, default=None))
    kind = name.replace_strict(_KINDS, default="communication")
    track = pl.when(kind == "kernel").then(0).when(name == "gc").then(6).otherwise(pl.coalesce(transfer, 5))
    of_stage = pl.concat_str(pl.lit('{"Process Group Name":"stage '), "stage", pl.lit('"}'))
    of_rank = pl.concat_str(pl.lit('{"Process Group Name":"'), name, pl.lit(" of rank "), "rank", pl.lit('"}'))
    is_collective = name.str.contains("all-gather|reduce-scatter|all-reduce")
    return rows.join(begins, on="step").select(
        "rank",
        "step",
        args=pl.when(name.is_in(_OF_STAGE)).then(of_stage).when(is_collective).then(of_rank),
        name=name,
        kind=kind,
        track=track.cast(pl.Int32),
        start_ns=((pl.col("begin") + pl.col("start_ts")) * 1e9).round().cast(pl.Int64),
        dur_ns=(pl.col("duration") * 1e9).round().cast(pl.Int64),
        category=pl.when(name == "gc").then(pl.lit("gc")),
        stage="stage",
        replica="dp_rank",
        sequence="seq_id",
        chunk="mc",
        model_chunk="gmc",
        micro_batch=pl.when(pl.col("mb_id") >= 0).then("mb_id"),
    )


def _tracks(spans: pl.DataFrame) -> pl.DataFrame:
    on_device = pl.col("track") < 6
    return spans.select("rank", "track").unique().sort("rank", "track").with_columns(
        group=pl.format("Rank {}", "rank"),
        label=pl.col("track").replace_strict(dict(enumerate(_TRACKS)), return_dtype=pl.String),
        kind=pl.when(on_device).then(pl.lit("stream")).when(pl.col("track") == 7).then(pl.lit("annotation")).otherwise(pl.lit("thread")),
        device=pl.when(on_device).then(0),
        sort="track",
        pid=pl.col("rank").cast(pl.String),
        tid=pl.col("track").cast(pl.String),
        stream=pl.when(on_device).then("track").cast(pl.Int64),
    )  # fmt: skip


def _steps(rows: pl.DataFrame) -> pl.DataFrame:
    end = pl.col("start_ns") + pl.col("dur_ns")
    of_job = rows.group_by("step").agg(pl.col("start_ns").min(), end_ns=end.max())
    of_ranks = rows.select("rank", "step").unique()
    return of_ranks.join(of_job, on="step").sort("rank", "step").with_columns(phase=pl.lit("train"), how=pl.lit("marker"))


def _step_spans(steps: pl.DataFrame) -> pl.DataFrame:
    duration = pl.col("end_ns") - pl.col("start_ns")
    name = pl.format("ProfilerStep#{}", "step")
    return steps.select("rank", "step", name=name, kind=pl.lit("step"), track=pl.lit(7, pl.Int32), start_ns="start_ns", dur_ns=duration)
