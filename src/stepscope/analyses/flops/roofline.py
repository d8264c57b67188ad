"""Is an operator limited by the arithmetic of the chip or by its memory, and how close is it to that roof?"""

from math import prod

import msgspec
import polars as pl

from stepscope.analyses.shared.flop_counts import flop_calls
from stepscope.analyses.shared.operator_calls import launcher, on_devices
from stepscope.model.devices import chips
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "name": pl.String,
    "shapes": pl.String,
    "dtypes": pl.String,
    "precision": pl.String,
    "calls": pl.Int64,
    "flops": pl.Int64,
    "bytes": pl.Int64,  # recorded, or the minimum: every input read once, the result written once
    "time_ns": pl.Int64,
    "intensity": pl.Float64,  # FLOPs per byte
    "flops_per_s": pl.Float64,
    "bytes_per_s": pl.Float64,
    "peak_flops_per_s": pl.Float64,
    "peak_bytes_per_s": pl.Float64,
    "roof_flops_per_s": pl.Float64,  # maximum of the chip at this intensity
    "reached_share": pl.Float64,
    "bound": pl.String,
    "how": pl.String,
}
_KEYS = ["rank", "device", "name", "shapes", "dtypes", "precision", "peak", "how"]


def roofline(trace: Trace) -> pl.DataFrame:
    """Per rank, operator and shapes of its inputs: FLOPs per byte, FLOP/s, and the roof of the chip at that intensity; most FLOPs first.

    FLOPs are those of `flops`. `how` is recorded if the source has the bytes; from shapes they are the minimum, and the true intensity may
    be lower. `bound` is memory if the bandwidth of the chip is the lower roof, else compute. Operators with unknown bytes are left out.
    """
    calls = flop_calls(trace).filter(pl.col("flops").is_not_null() & (pl.col("time_ns") > 0))
    distinct = calls.select("name", "shapes", "dtypes", "values", "flops").unique()
    least = [_least_bytes(*row) for row in distinct.iter_rows()]
    calls = calls.join(
        distinct.with_columns(bytes=pl.Series(least, dtype=pl.Int64)),
        on=["name", "shapes", "dtypes", "values", "flops"],
        how="left",
        nulls_equal=True,
    ).with_columns(how=pl.lit("from shapes"))
    key = ["rank", "device", "name", "shapes", "dtypes"]
    peaks = calls.select(*key, "precision", "peak").unique(key, maintain_order=True)
    recorded = _recorded_work(trace).join(peaks, on=key, how="left", nulls_equal=True)
    calls = calls.join(recorded.select("rank").unique(), on="rank", how="anti")
    columns = [*_KEYS, "flops", "bytes", "time_ns"]
    rows = pl.concat([calls.select(columns), recorded.with_columns(how=pl.lit("recorded")).select(columns)])
    intensity, speed = pl.col("flops") / pl.col("bytes"), pl.col("flops") / pl.col("time_ns") * 1e9
    memory_roof = pl.col("intensity") * pl.col("peak_bytes_per_s")
    return (
        rows.filter(pl.col("bytes") > 0)
        .group_by(_KEYS)
        .agg(pl.col("flops", "bytes", "time_ns").sum(), calls=pl.len())
        .join(_bandwidths(trace), on="rank", how="left")
        .with_columns(
            intensity=intensity,
            flops_per_s=speed,
            bytes_per_s=pl.col("bytes") / pl.col("time_ns") * 1e9,
            peak_flops_per_s="peak",
            peak_bytes_per_s=pl.when(pl.col("device") != "cpu").then("bandwidth"),
        )
        .with_columns(
            roof_flops_per_s=pl.when(pl.col("peak").is_not_null() & pl.col("peak_bytes_per_s").is_not_null()).then(
                pl.min_horizontal("peak", memory_roof)
            )
        )
        .with_columns(
            reached_share=pl.col("flops_per_s") / pl.col("roof_flops_per_s"),
            bound=pl.when(pl.col("roof_flops_per_s").is_not_null()).then(
                pl.when(memory_roof < pl.col("peak")).then(pl.lit("memory")).otherwise(pl.lit("compute"))
            ),
        )
        .sort("rank", -pl.col("flops"), "name", "shapes", "dtypes", "device", nulls_last=True)
        .select(pl.col(column).cast(dtype) for column, dtype in COLUMNS.items())
    )


def _recorded_work(trace: Trace) -> pl.DataFrame:
    """Device work with recorded FLOPs and bytes."""
    return (
        on_devices(trace)
        .filter(pl.col("flops").is_not_null() & pl.col("bytes").is_not_null() & (pl.col("dur_ns") > 0))
        .select(
            "rank",
            "device",
            *(pl.col(column).cast(pl.String) for column in ("shapes", "dtypes")),
            "flops",
            "bytes",
            name=launcher(),
            time_ns="dur_ns",
        )
        .collect()
    )


def _bandwidths(trace: Trace) -> pl.DataFrame:
    """The memory bandwidth of the chip of each rank, if all its chips have the same."""
    devices = trace.devices.filter(pl.col("kind") != "cpu").select("rank", "name", "peak_bandwidth").unique().collect()
    rows = [
        (rank, recorded or (chip.bandwidth if (chip := chips.find(name or "")) else None)) for rank, name, recorded in devices.iter_rows()
    ]
    table = pl.DataFrame(rows, schema={"rank": pl.Int32, "bandwidth": pl.Float64}, orient="row").drop_nulls()
    return (
        table.group_by("rank")
        .agg(pl.col("bandwidth").first(), kinds=pl.col("bandwidth").n_unique())
        .filter(pl.col("kinds") == 1)
        .drop("kinds")
    )


_SIZES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
_MORE_SIZES = {"long int": 8, "long": 8, "int64": 8, "int": 4, "int32": 4, "bool": 1, "unsigned char": 1, "uint8": 1}


def _least_bytes(name: str, shapes: str | None, dtypes: str | None, values: str | None, flops: int) -> int | None:
    """Every input once and the result once; None if the shapes are not sufficient."""
    try:
        dims, types = msgspec.json.decode(shapes or ""), msgspec.json.decode(dtypes or "")
        tensors = [(shape, _size(dtype)) for shape, dtype in zip(dims, types, strict=True) if shape and isinstance(shape[0], int)]
        inputs = msgspec.json.decode(values or "[]")
        written = _results(name, dims, flops, transposed=len(inputs) > 6 and inputs[6] == "True")
        return int(sum(prod(shape) * size for shape, size in tensors) + written * tensors[0][1])
    except (msgspec.DecodeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError):
        return None


def _size(dtype: str) -> int:
    return _SIZES.get(chips.precision(dtype) or "") or _MORE_SIZES[dtype]


def _results(name: str, dims: list[list[int]], flops: int, *, transposed: bool) -> int:
    """Number of elements that a call writes."""
    if "convolution_backward" in name:
        return prod(dims[1]) + prod(dims[2])
    if "conv" in name:
        if transposed:
            raise ValueError(name)
        return flops // (2 * prod(dims[1][1:]))
    if "attention" in name:
        query, key, value = dims[1:4] if "backward" in name else dims[:3]
        return prod(query) + prod(key) + prod(value) if "backward" in name else prod(query[:-1]) * value[-1]
    if "mm" in name or "mv" in name or "dot" in name:
        inner = (dims[1] if "add" in name else dims[0])[-1]
        return flops // (2 * inner)
    return max(prod(shape) for shape in dims if shape)  # element by element
