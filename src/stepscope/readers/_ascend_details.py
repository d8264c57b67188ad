"""A table of kernels (kernel_details.csv, op_summary_*.csv) beside a timeline: which span each of its rows tells of."""

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import units
from stepscope.readers import _kineto
from stepscope.readers._ascend_lanes import LANES
from stepscope.readers._kineto import Problem


class Details(NamedTuple):
    """What a table of kernels (kernel_details.csv, op_summary_*.csv) says; and how its rows are found on the timeline."""

    rows: pl.DataFrame  # of DETAILS
    file: str = ""


DETAILS: dict[str, pl.DataType | type[pl.DataType]] = {
    "name": pl.String,
    "start_ns": pl.Int64,
    "dur_ns": pl.Int64,
    "device": pl.Int32,
    "stream": pl.String,
    "op_type": pl.String,
    "core": pl.String,  # AI_CORE, AI_VECTOR_CORE, AI_CPU, HCCL, ...
    "shapes": pl.String,
    "dtypes": pl.String,
    "step": pl.String,
    "details": pl.String,  # JSON text of the other columns
}
NO_DETAILS = Details(pl.DataFrame(schema=DETAILS))
COMMUNICATION_CORES = ["HCCL", "COMMUNICATION"]
# A table of kernels and a timeline round the same moment each in its own way.
_ROUNDING_NS = 2


class Matches(NamedTuple):
    """Spans that a table of kernels tells of, by row."""

    row: pl.Series
    columns: pl.DataFrame  # core, op_type, shapes, dtypes, step, details

    def of(self, column: str, height: int) -> pl.Series:
        return pl.Series(column, [None], dtype=pl.String).new_from_index(0, height).scatter(self.row, self.columns[column])


def with_details(
    scratch: Path, local: list[NDArray[np.int32]], lanes: pl.DataFrame, details: Details, problems: list[Problem]
) -> tuple[Matches, pl.DataFrame]:
    """Which spans the table of kernels tells of. Rows of it that the timeline lacks are written as one more piece of spans."""
    told = ["core", "op_type", "shapes", "dtypes", "step", "details"]
    rows = details.rows.with_row_index("detail").sort("start_ns")
    found = _kineto.load(scratch, "spans", local) if _kineto.files(scratch, "spans") else None
    matched = pl.DataFrame(schema={"detail": pl.UInt32, "row": pl.UInt32})
    before = 0
    if found is not None:
        before = found.height
        places = lanes.filter(pl.col("layer").is_in(["hardware", "communication"])).select("track", "layer", "device")
        tasks = found.select("track", "start_ns", end_ns=end(), name=pl.col("name").cast(pl.String)).with_row_index("row")
        tasks = tasks.join(places, on="track").sort("start_ns")
        if rows.height and tasks.height:
            by = ["name", "device"] if rows["device"].null_count() == 0 else ["name"]
            matched = _matched(rows.select("detail", "start_ns", *by, until_ns=end()), tasks, by)
    missing = rows.join(matched, on="detail", how="anti")
    if missing.height:
        missing = _placed(missing, found)
        lanes, more = _more_spans(missing, lanes, found)
        more.write_ipc(scratch / f"spans.{max(len(local), len(_kineto.files(scratch, 'spans'))):06d}.arrow", compression="lz4")
        unplaced = int(missing["elsewhere"].sum())
        if found is not None and missing.height > unplaced:
            what = f"{units.count(missing.height - unplaced, 'kernel')} of {details.file} not on the timeline: drawn as the table has them"
            problems.append(Problem("", what, 0))
        if unplaced:
            what = (
                f"{units.count(unplaced, 'kernel')} of {details.file} ran long before or after the timeline: shown without a place in time"
            )
            problems.append(Problem("", what, 0))
        added = missing.select("detail").with_columns(row=pl.int_range(before, before + missing.height, dtype=pl.UInt32, eager=True))
        matched = pl.concat([matched, added])
    columns = matched.join(rows.select("detail", *told), on="detail", how="left", maintain_order="left")
    return Matches(columns["row"], columns.select(told)), lanes


def _matched(rows: pl.DataFrame, tasks: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """detail, row: a table's row and the task of its name that begins with it; else the one within it, as of kernels with parts the table
    has the whole, and the timeline the part that computes."""

    def nearest(rows: pl.DataFrame, tasks: pl.DataFrame, strategy: Literal["nearest", "forward"], tolerance: int | None) -> pl.DataFrame:
        found = rows.join_asof(
            tasks.drop("track", *({"device"} - set(by))),
            on="start_ns",
            by=by,
            strategy=strategy,
            tolerance=tolerance,
            check_sortedness=False,
        )
        return found.filter(pl.col("row").is_not_null()).unique("row", keep="first", maintain_order=True)

    exact = nearest(rows, tasks, "nearest", _ROUNDING_NS).select("detail", "row")
    rows, tasks = rows.join(exact, on="detail", how="anti"), tasks.join(exact, on="row", how="anti")
    within = nearest(rows, tasks, "forward", None).filter(pl.col("end_ns") <= pl.col("until_ns") + _ROUNDING_NS)
    return pl.concat([exact, within.select("detail", "row")])


def _placed(missing: pl.DataFrame, found: pl.DataFrame | None) -> pl.DataFrame:
    """With `elsewhere`: what is of another time than the timeline, as a table of another recording is, gets a place on it, one by one."""
    if found is None or found.is_empty():
        return missing.with_columns(elsewhere=pl.lit(False))
    first, last = found.select(pl.col("start_ns").min(), (pl.col("start_ns") + pl.col("dur_ns")).max().alias("last")).row(0)
    most = np.iinfo(np.int64)
    far = (pl.col("start_ns") > min(last + (last - first), most.max)) | (end() < max(first - (last - first), most.min))
    missing = missing.with_columns(elsewhere=far)
    behind = (pl.col("dur_ns").cum_sum() - pl.col("dur_ns")).over("elsewhere") + first
    return missing.with_columns(start_ns=pl.when("elsewhere").then(behind).otherwise("start_ns"))


def _more_spans(missing: pl.DataFrame, lanes: pl.DataFrame, found: pl.DataFrame | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Kernels as columns like those of decoded events, on the stream they name."""
    communication = pl.col("core").is_in(COMMUNICATION_CORES).fill_null(False)
    missing = missing.with_columns(
        layer=pl.when("elsewhere")
        .then(pl.lit("elsewhere"))
        .when(communication)
        .then(pl.lit("communication"))
        .otherwise(pl.lit("hardware")),
        label=pl.when("elsewhere")
        .then(pl.lit("Kernels of another time"))
        .when(communication)
        .then(pl.lit("Communication"))
        .otherwise(pl.format("Stream {}", pl.col("stream").fill_null("?"))),
        device=pl.col("device").fill_null(0),
    )
    place = ["layer", "label", "device"]
    known = lanes.filter(pl.col("layer").is_in(["hardware", "communication"])).unique(place, keep="first", maintain_order=True)
    new = missing.select(place).unique(maintain_order=True).join(known, on=place, how="anti").with_row_index("nth")
    # In a few files the timeline is of one device and the table names it otherwise.
    first = (lanes["track"].max() if lanes.height else None) or 0
    more = new.select(
        track=(pl.col("nth") + (int(str(first)) + 1 if lanes.height else 0)).cast(pl.Int32),
        pid=pl.lit("Ascend Hardware"),
        tid=pl.col("label").str.strip_prefix("Stream "),
        apart=pl.lit(""),
        process=pl.lit("Ascend Hardware"),
        label="label",
        layer="layer",
        device="device",
        sort=pl.when(pl.col("layer") == "elsewhere").then(pl.lit(1 << 40, pl.Int64)).otherwise(pl.lit(0, pl.Int64)),
    )
    lanes = pl.concat([lanes, more.select(pl.col(name).cast(dtype) for name, dtype in LANES.items())])
    tracks = pl.concat([known.select(*place, "track"), more.select(*place, "track")])
    spans = missing.join(tracks, on=place, how="left", maintain_order="left").select(
        category=pl.lit("", pl.Categorical),
        name=pl.col("name").cast(pl.Categorical),
        track=pl.col("track").cast(pl.Int32),
        start_ns="start_ns",
        dur_ns="dur_ns",
        correlation=pl.lit(None, pl.Int64),
        external=pl.lit(None, pl.Int64),
        flops=pl.lit(None, pl.Int64),
        bytes=pl.lit(None, pl.Int64),
        shapes=pl.lit(None, pl.Categorical),
        dtypes=pl.lit(None, pl.Categorical),
        module=pl.lit(None, pl.Categorical),
        args=pl.lit("{}"),
        said_kind=pl.lit(None, pl.String),
        said_type=pl.lit(None, pl.String),
        instant=pl.lit(False),
        known=pl.lit(True),
    )
    return lanes, spans


def end() -> pl.Expr:
    return pl.col("start_ns") + pl.col("dur_ns")
