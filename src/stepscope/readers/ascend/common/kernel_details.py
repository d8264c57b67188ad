"""Kernel tables (kernel_details.csv, op_summary_*.csv) beside a timeline, and the span that each row describes."""

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.model import intervals, units
from stepscope.readers.ascend.common.tables import COMMUNICATION_CORES, column, drop_invalid, nanoseconds
from stepscope.readers.ascend.common.texts import json_lists
from stepscope.readers.ascend.common.tracks import TRACK_COLUMNS
from stepscope.readers.chrome.parts import load_part, part_files
from stepscope.readers.common.problems import Problem

KERNEL_COLUMNS: dict[str, pl.DataType | type[pl.DataType]] = {
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
_COLUMNS_WITH_A_HOME = {
    *("Step Id", "Device_id", "Stream ID", "Name", "Op Name", "Type", "OP Type", "Accelerator Core", "Task Type"),
    *("Start Time(us)", "Task Start Time(us)", "Duration(us)", "Task Duration(us)", "Input Shapes", "Input Data Types"),
}
_ROUNDING_NS = 2  # the kernel table and the timeline round the same timestamp differently
_WAIT_ROUNDING_NS = 1000
_MATCHED = ["core", "op_type", "shapes", "dtypes", "step", "details"]
_PLACE = ["layer", "label", "device"]


class KernelTable(NamedTuple):
    rows: pl.DataFrame  # columns: KERNEL_COLUMNS
    file: str = ""
    gaps: intervals.Set = intervals.NONE  # between rows, longer than the recorded wait: rows are missing there


NO_KERNELS = KernelTable(pl.DataFrame(schema=KERNEL_COLUMNS))


def kernel_table(rows: pl.DataFrame, file: str, problems: list[Problem]) -> KernelTable:
    """The rows of kernel_details.csv or op_summary_*.csv, typed."""
    if rows.is_empty():
        return KernelTable(NO_KERNELS.rows, file)
    rest = [name for name in rows.columns if name not in _COLUMNS_WITH_A_HOME]
    kernels = rows.select(
        name=column(rows, "Name", "Op Name"),
        start_ns=nanoseconds(column(rows, "Start Time(us)", "Task Start Time(us)")),
        dur_ns=nanoseconds(column(rows, "Duration(us)", "Task Duration(us)")),
        device=column(rows, "Device_id").cast(pl.Int32, strict=False),
        stream=column(rows, "Stream ID"),
        op_type=column(rows, "Type", "OP Type"),
        core=column(rows, "Accelerator Core", "Task Type"),
        shapes=_lists(rows, "Input Shapes"),
        dtypes=_lists(rows, "Input Data Types"),
        step=column(rows, "Step Id"),
        wait_ns=nanoseconds(column(rows, "Wait Time(us)", "Task Wait Time(us)")),
        details=pl.struct(rest).struct.json_encode() if rest else pl.lit(None, pl.String),
    )
    is_valid = pl.col("name").is_not_null() & pl.col("start_ns").is_not_null() & (pl.col("dur_ns") >= 0)
    valid = drop_invalid(kernels, is_valid, problems, file, "row", "without a name, a start or a duration")
    return KernelTable(valid.select(pl.col(name).cast(dtype) for name, dtype in KERNEL_COLUMNS.items()), file, _gaps(valid))


def _gaps(rows: pl.DataFrame) -> intervals.Set:
    """Where rows are missing: a row says how long its device waited since the end of the row before it."""
    ends = (pl.col("start_ns") + pl.col("dur_ns")).cum_max().shift(1).over("device")
    gaps = rows.sort("start_ns").select(start=ends, end=pl.col("start_ns") - pl.col("wait_ns"))
    gaps = gaps.filter(pl.col("end") - pl.col("start") > _WAIT_ROUNDING_NS)
    return intervals.merge(gaps["start"].to_numpy(), gaps["end"].to_numpy())


def _lists(rows: pl.DataFrame, name: str) -> pl.Expr:
    return json_lists(pl.col(name)) if name in rows.columns else pl.lit(None, pl.String)


class Matches(NamedTuple):
    """The spans that a kernel table describes."""

    row: pl.Series  # of the span
    columns: pl.DataFrame  # core, op_type, shapes, dtypes, step, details

    def values(self, column: str, height: int) -> pl.Series:
        """The column for all spans; null for those without a row in the table."""
        return pl.Series(column, [None], dtype=pl.String).new_from_index(0, height).scatter(self.row, self.columns[column])


def match_kernels(
    scratch: Path, local: list[NDArray[np.int32]], tracks: pl.DataFrame, table: KernelTable, problems: list[Problem]
) -> tuple[Matches, pl.DataFrame]:
    """The spans that the kernel table describes, and all tracks. Rows that the timeline lacks are written as one more file of spans."""
    rows = table.rows.with_row_index("detail").sort("start_ns")
    spans = load_part(scratch, "spans", local) if part_files(scratch, "spans") else None
    matched = _match(rows, spans, tracks)
    missing = rows.join(matched, on="detail", how="anti")
    if missing.height:
        missing = _line_up_untimed(missing, spans)
        tracks, added = _missing_spans(missing, tracks)
        added.write_ipc(scratch / f"spans.{max(len(local), len(part_files(scratch, 'spans'))):06d}.arrow", compression="lz4")
        untimed = int(missing["untimed"].sum())
        if spans is not None and missing.height > untimed:
            kernels = units.count(missing.height - untimed, "kernel")
            problems.append(Problem("", f"{kernels} of {table.file} are not on the timeline: drawn with the times of the table", 0))
        if untimed:
            kernels = units.count(untimed, "kernel")
            problems.append(Problem("", f"{kernels} of {table.file} ran long before or after the timeline: shown without a start", 0))
        first = spans.height if spans is not None else 0
        row = pl.int_range(first, first + missing.height, dtype=pl.UInt32, eager=True)
        matched = pl.concat([matched, missing.select("detail").with_columns(row=row)])
    columns = matched.join(rows.select("detail", *_MATCHED), on="detail", how="left", maintain_order="left")
    return Matches(columns["row"], columns.select(_MATCHED)), tracks


def _match(rows: pl.DataFrame, spans: pl.DataFrame | None, tracks: pl.DataFrame) -> pl.DataFrame:
    """detail, row: the span of each row of the table, by name and start.

    Some kernels have parts: the table has the whole, the timeline only the part that computes. It matches the row that encloses it.
    """
    none = pl.DataFrame(schema={"detail": pl.UInt32, "row": pl.UInt32})
    if spans is None:
        return none
    on_device = tracks.filter(pl.col("layer").is_in(["hardware", "communication"])).select("track", "device")
    tasks = spans.select("track", "start_ns", end_ns=end(), name=pl.col("name").cast(pl.String)).with_row_index("row")
    tasks = tasks.join(on_device, on="track").sort("start_ns")
    if rows.is_empty() or tasks.is_empty():
        return none
    by = ["name", "device"] if rows["device"].null_count() == 0 else ["name"]
    rows, tasks = rows.select("detail", "start_ns", *by, until_ns=end()), tasks.select("row", "start_ns", "end_ns", *by)

    def nearest(strategy: Literal["nearest", "forward"], tolerance: int | None) -> pl.DataFrame:
        pairs = rows.join_asof(tasks, on="start_ns", by=by, strategy=strategy, tolerance=tolerance, check_sortedness=False)
        return pairs.filter(pl.col("row").is_not_null()).unique("row", keep="first", maintain_order=True)

    exact = nearest("nearest", _ROUNDING_NS).select("detail", "row")
    rows, tasks = rows.join(exact, on="detail", how="anti"), tasks.join(exact, on="row", how="anti")
    enclosed = nearest("forward", None).filter(pl.col("end_ns") <= pl.col("until_ns") + _ROUNDING_NS)
    return pl.concat([exact, enclosed.select("detail", "row")])


def _line_up_untimed(missing: pl.DataFrame, spans: pl.DataFrame | None) -> pl.DataFrame:
    """With `untimed`: kernels of another recording than the timeline's. They are drawn one after the other from its start."""
    if spans is None or spans.is_empty():
        return missing.with_columns(untimed=pl.lit(False))
    first, last = spans.select(pl.col("start_ns").min(), end().max().alias("last")).row(0)
    limits = np.iinfo(np.int64)
    far = (pl.col("start_ns") > min(last + (last - first), limits.max)) | (end() < max(first - (last - first), limits.min))
    missing = missing.with_columns(untimed=far)
    queued = (pl.col("dur_ns").cum_sum() - pl.col("dur_ns")).over("untimed") + first
    return missing.with_columns(start_ns=pl.when("untimed").then(queued).otherwise("start_ns"))


def _missing_spans(missing: pl.DataFrame, tracks: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """All tracks, and the kernels as columns like those of decoded events, on the stream that the table names."""
    communication = pl.col("core").is_in(COMMUNICATION_CORES).fill_null(False)
    stream = pl.format("Stream {}", pl.col("stream").fill_null("?"))
    missing = missing.with_columns(
        layer=pl.when("untimed").then(pl.lit("untimed")).when(communication).then(pl.lit("communication")).otherwise(pl.lit("hardware")),
        label=pl.when("untimed")
        .then(pl.lit("Kernels of another recording"))
        .when(communication)
        .then(pl.lit("Communication"))
        .otherwise(stream),
        device=pl.col("device").fill_null(0),
    )
    on_device = tracks.filter(pl.col("layer").is_in(["hardware", "communication"])).unique(_PLACE, keep="first", maintain_order=True)
    new = missing.select(_PLACE).unique(maintain_order=True).join(on_device, on=_PLACE, how="anti").with_row_index("nth")
    first = int(tracks["track"].max()) + 1 if tracks.height else 0  # type: ignore[arg-type]
    added = new.select(
        track=(pl.col("nth") + first).cast(pl.Int32),
        pid=pl.lit("Ascend Hardware"),
        tid=pl.col("label").str.strip_prefix("Stream "),
        subtrack=pl.lit(""),
        process=pl.lit("Ascend Hardware"),
        label="label",
        layer="layer",
        device="device",
        sort=pl.when(pl.col("layer") == "untimed").then(pl.lit(1 << 40, pl.Int64)).otherwise(pl.lit(0, pl.Int64)),
    )
    numbers = pl.concat([on_device.select(*_PLACE, "track"), added.select(*_PLACE, "track")])
    absent = dict.fromkeys(("correlation", "external", "flops", "bytes"), pl.Int64()) | dict.fromkeys(
        ("shapes", "dtypes", "module"), pl.Categorical()
    )
    spans = missing.join(numbers, on=_PLACE, how="left", maintain_order="left").select(
        pl.lit("", pl.Categorical).alias("category"),
        pl.col("name").cast(pl.Categorical),
        pl.col("track").cast(pl.Int32),
        "start_ns",
        "dur_ns",
        *(pl.lit(None, dtype).alias(name) for name, dtype in absent.items()),
        args=pl.lit("{}"),
        hint_kind=pl.lit(None, pl.String),
        hint_type=pl.lit(None, pl.String),
        instant=pl.lit(False),
        known_phase=pl.lit(True),
    )
    return pl.concat([tracks, added.select(pl.col(name).cast(dtype) for name, dtype in TRACK_COLUMNS.items())]), spans


def end() -> pl.Expr:
    return pl.col("start_ns") + pl.col("dur_ns")
