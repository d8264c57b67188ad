"""Floating-point operations of each call: as recorded, or from the shapes of its inputs.

A multiply-add counts as two. Only matrix products, convolutions and attention count; a mask saves nothing.
"""

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl

from stepscope.analyses.shared.operator_calls import host_operators, launcher, nearest, on_devices, rows_of, upward
from stepscope.analyses.shared.steps.coverage import coverage, steps_with_lost_work
from stepscope.analyses.shared.steps.lost_work import LAUNCH, with_starts
from stepscope.model.devices import chips
from stepscope.model.intervals import Bools
from stepscope.model.memo import memoized
from stepscope.model.steps.step_assignment import DEVICE_WORK
from stepscope.model.trace import Trace

Dims = list[list[int]]  # of each input; [] for an input that is not a tensor
Values = list[str]  # of each input that is not a tensor, as text; "" for tensors


@memoized
def has_flops(trace: Trace) -> bool:
    """Whether any call can have FLOPs: they are recorded, or shapes are."""
    return any(trace.spans.select(pl.col("flops", "shapes").count()).collect().row(0))


@memoized
def flop_calls(trace: Trace) -> pl.DataFrame:
    """A row per call that counts: rank, step, operator (its span on the host), device, name, scope, flops, precision, time_ns, ...

    Of nested operators the outer one counts; of an operator that calls itself again with other types, as under autocast, the inner one.
    time_ns is the duration of the device work under it, or its own if it launched none; null if its device work may be missing: the step
    is not completely recorded, its launch calls have no device work, or nothing links device work to operators, so that also its device
    is unknown. ideal_ns is the time that the chip would need at the peak of this precision; peak_source is the source of the peak, or the
    reason why there is none.
    """
    rows = pl.concat(
        [_on_devices(trace), _on_host(trace, host_operators(trace, "track", "step", "name", "scope", "shapes", "dtypes", "flops"))]
    )
    rows = rows.join(_call_flops(rows), on=["name", "shapes", "dtypes", "values"], how="left", nulls_equal=True).with_columns(
        flops=pl.coalesce("recorded", "derived"),
        how=pl.when(pl.col("recorded").is_not_null())
        .then(pl.lit("recorded"))
        .when(pl.col("derived").is_not_null())
        .then(pl.lit("from shapes"))
        .when(pl.col("shapes").is_null())
        .then(pl.lit("no shapes"))
        .otherwise(pl.lit("unknown")),
        # A kernel for 32-bit inputs that runs on tensor cores computes in TF32.
        precision=pl.when((pl.col("precision") == "fp32") & pl.col("tensor_cores")).then(pl.lit("tf32")).otherwise("precision"),
    )
    return rows.join(_peaks(trace, rows), on=["rank", "device", "precision"], how="left", nulls_equal=True).with_columns(
        ideal_ns=pl.col("flops") / pl.col("peak") * 1e9
    )


def flop_totals(rows: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Totals of `flop_calls`: FLOPs, the time of the calls with known FLOPs, and the rate and utilization of those with a known time."""
    known = pl.col("flops").is_not_null()
    timed = known & pl.col("time_ns").is_not_null()
    return (
        rows.group_by(*keys, maintain_order=True)
        .agg(
            calls=pl.len().cast(pl.Int64),
            unknown_calls=(~known).sum().cast(pl.Int64),
            flops=pl.when(known.any()).then(pl.col("flops").sum()),
            timed_flops=pl.col("flops").filter(timed).sum(),
            time_ns=pl.col("time_ns").filter(known).sum(),
            ideal_ns=pl.when(pl.col("ideal_ns").filter(timed).is_not_null().all() & timed.any()).then(
                pl.col("ideal_ns").filter(timed).sum()
            ),
            how=_joined("how"),
            precision=_joined("precision"),
            peak_source=_joined("peak_source"),
        )
        .with_columns(pl.when(pl.col("time_ns") > 0).then(pl.col("time_ns")).alias("took_ns"))
        .with_columns(flops_per_s=pl.col("timed_flops") / pl.col("took_ns") * 1e9, utilization=pl.col("ideal_ns") / pl.col("took_ns"))
    )


class _Formula(NamedTuple):
    operand: int  # the input whose type is the precision
    flops: Callable[[Dims, Values], int | None]


def _product(a: list[int], b: list[int]) -> int | None:
    """[..., m, k] x [..., k, n]: 2 m n k per item of the batch; a missing m or n is 1."""
    inner, n = (b[-2], b[-1]) if len(b) > 1 else (b[-1], 1)
    return 2 * prod(a) * n if a[-1] == inner and a[:-2] == b[:-2] else None


def _grouped(a: list[int], b: list[int]) -> int | None:
    """Groups of rows, of columns or of the inner dimension share one tensor and make up one product."""
    return 2 * prod(a) * b[-1] if len(a) == len(b) or len(a) == 2 else 2 * prod(a[-2:]) * b[-1]


def _convolution(dims: Dims, values: Values) -> int:
    """2 x batch x output points (input points, if transposed) x weights. Padding counts as data."""
    x, weight = dims[0], dims[1]
    if values[6] == "True":
        return 2 * x[0] * prod(x[2:]) * prod(weight)
    stride, padding, dilation = (_integers(text, len(x) - 2) for text in values[3:6])
    points = [
        (size + 2 * pad - step * (width - 1) - 1) // jump + 1
        for size, width, jump, pad, step in zip(x[2:], weight[2:], stride, padding, dilation, strict=True)
    ]
    return 2 * x[0] * prod(points) * prod(weight)


def _convolution_backward(dims: Dims, values: Values) -> int:
    """The gradients of input and weight, if they are computed, each as much as the forward pass."""
    output, x, weight = dims[:3]
    points = x if values[7] == "True" else output
    return 2 * x[0] * prod(points[2:]) * prod(weight) * values[10].strip("[]").split(", ")[:2].count("True")


def _attention(query: list[int], key: list[int], value: list[int]) -> int:
    """Scores and their product with the values."""
    return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _attention_backward(query: list[int], key: list[int], value: list[int]) -> int:
    """Scores, then the gradients of scores, values, queries and keys."""
    return 2 * prod(query[:-1]) * key[-2] * (3 * query[-1] + 2 * value[-1])


def _integers(text: str, count: int) -> list[int]:
    """`[2, 2]`; a single number applies to every dimension."""
    numbers = [int(number) for number in text.strip("[]").split(",")]
    return numbers * count if len(numbers) == 1 else numbers


_ATTENTION = ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu", "fused_attention_overrideable")
_FORMULAS = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::mv", "aten::dot", "aten::_scaled_mm", "aten::_int_mm"),
                    _Formula(0, lambda dims, values: _product(dims[0], dims[1]))),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm", "aten::addmv", "aten::_addmm_activation"),
                    _Formula(1, lambda dims, values: _product(dims[1], dims[2]))),
    **dict.fromkeys(("aten::_grouped_mm", "aten::_scaled_grouped_mm"),
                    _Formula(0, lambda dims, values: _grouped(dims[0], dims[1]))),
    **dict.fromkeys(("aten::convolution", "aten::_convolution", "aten::convolution_overrideable"),
                    _Formula(0, _convolution)),
    "aten::convolution_backward": _Formula(0, _convolution_backward),
    **dict.fromkeys((f"aten::_scaled_dot_product_{kind}" for kind in _ATTENTION),
                    _Formula(0, lambda dims, values: _attention(*dims[:3]))),
    **dict.fromkeys((f"aten::_scaled_dot_product_{kind}_backward" for kind in _ATTENTION),
                    _Formula(1, lambda dims, values: _attention_backward(*dims[1:4]))),
}  # fmt: skip
_CONVOLUTIONS = [name for name in _FORMULAS if "convolution" in name]  # they depend on more than shapes
_LINKED = 0.95  # of the kernels of a rank
_VALUES = r'"Concrete Inputs":\s*(\[(?:"[^"]*"|[^\]"])*\])'
_TENSOR_CORES = r"(?i)tf32|xf32|tensorop|1688|nvjet"


def _on_devices(trace: Trace) -> pl.DataFrame:
    """Device work with recorded FLOPs."""
    return (
        on_devices(trace)
        .filter(pl.col("flops").is_not_null())
        .select(
            "rank",
            "step",
            pl.lit(None, pl.Int64).alias("operator"),
            "device",
            *(pl.col(column).cast(pl.String) for column in ("scope", "shapes", "dtypes")),
            name=launcher(),
            values=pl.lit(None, pl.String),
            recorded="flops",
            time_ns="dur_ns",
            tensor_cores=pl.lit(False),
        )
        .collect()
    )


def _on_host(trace: Trace, ops: pl.DataFrame) -> pl.DataFrame:
    """Host operators that count, of ranks whose device work has no recorded FLOPs."""
    calls = ops.with_columns(tensor_cores=pl.Series(_on_tensor_cores(trace, ops))).filter(_counts(ops))
    calls = calls.with_columns(pl.col("name").cast(pl.String).str.strip_suffix("_"))  # in place or not
    convolution = pl.col("name").is_in(_CONVOLUTIONS)
    if calls.select((convolution & pl.col("shapes").is_not_null()).any()).item():
        values = trace.spans.filter((pl.col("kind") == "op") & pl.col("name").cast(pl.String).is_in(_CONVOLUTIONS))
        calls = calls.join(
            values.select("rank", "span", values=pl.col("args").str.extract(_VALUES)).collect(), on=["rank", "span"], how="left"
        )
    else:
        calls = calls.with_columns(values=pl.lit(None, pl.String))
    recorded = trace.spans.filter(pl.col("kind").is_in(DEVICE_WORK) & pl.col("flops").is_not_null()).select("rank").unique().collect()
    device = on_devices(trace).group_by("rank").agg(pl.col("device").min()).collect()  # aicore before aicpu
    on_device = pl.col("launches") > 0
    calls = calls.join(recorded, on="rank", how="anti").join(device, on="rank", how="left")
    unrecorded = steps_with_lost_work(trace).with_columns(unrecorded=True)
    not_linked = pl.col("rank").is_in(_ranks_without_links(trace)) | pl.col("starts")
    calls = _with_launches(trace, calls.join(unrecorded, on=["rank", "step"], how="left"))
    calls = calls.with_columns(unknown=pl.col("unrecorded").fill_null(False) | (~on_device & not_linked))
    return calls.select(
        "rank",
        "step",
        pl.col("span").alias("operator"),
        pl.when(on_device).then("device").when(~pl.col("unknown")).then(pl.lit("cpu")).alias("device"),
        *(pl.col(column).cast(pl.String) for column in ("scope", "shapes", "dtypes")),
        "name",
        "values",
        pl.col("flops").alias("recorded"),
        pl.when(~pl.col("unknown")).then(pl.when(on_device).then("device_ns").otherwise("dur_ns")).alias("time_ns"),
        "tensor_cores",
    )


def _with_launches(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """The calls with `starts`: whether a launch call starts in them. Without device work, its record is lost."""
    launches = trace.spans.filter(pl.col("kind") == "api", pl.col("name").cast(pl.String).str.contains(LAUNCH))
    ends = calls.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    return with_starts(ends, launches.select("rank", "track", "start_ns").collect(), "rank", "track")


def _ranks_without_links(trace: Trace) -> list[int]:
    """The ranks with a device and too few links from kernels to operators: an operator without kernels may have run on the device."""
    kernels = on_devices(trace).filter(pl.col("kind") == "kernel")
    shares = kernels.group_by("rank").agg(linked=pl.col("op").is_not_null().mean()).filter(pl.col("linked") >= _LINKED)
    with_device = [rank for rank, data in coverage(trace).data.items() if data in ("complete", "partial", "none")]
    return sorted(set(with_device) - set(shares.collect()["rank"]))


def _counts(ops: pl.DataFrame) -> pl.Series:
    names = ops["name"].unique()
    counting = names.filter(names.cast(pl.String).str.strip_suffix("_").is_in(list(_FORMULAS)))
    outer, name = ops["outer"].to_numpy(), ops["name"].to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    marked = np.isin(name, counting.to_physical().to_numpy()) | ops["flops"].is_not_null().to_numpy()
    around = nearest(outer, marked)
    again = marked & (around >= 0) & (name == name[around])
    marked[around[again]] = False
    return pl.Series(marked & (nearest(outer, marked) < 0))


def _on_tensor_cores(trace: Trace, ops: pl.DataFrame) -> Bools:
    kernels = on_devices(trace).filter(pl.col("op").is_not_null() & pl.col("name").cast(pl.String).str.contains(_TENSOR_CORES))
    rows = kernels.select("rank", "op").collect()
    return upward(ops["outer"].to_numpy(), rows_of(ops, rows["rank"], rows["op"]), np.ones(rows.height, np.int64)) > 0


def _call_flops(rows: pl.DataFrame) -> pl.DataFrame:
    """FLOPs and precision of every distinct call."""
    distinct = rows.select("name", "shapes", "dtypes", "values").unique()
    values = [_flops_and_precision(*row) for row in distinct.iter_rows()]
    return distinct.with_columns(
        derived=pl.Series([flops for flops, _ in values], dtype=pl.Int64),
        precision=pl.Series([precision for _, precision in values], dtype=pl.String),
    )


def _flops_and_precision(name: str, shapes: str | None, dtypes: str | None, values: str | None) -> tuple[int | None, str | None]:
    formula = _FORMULAS.get(name, _Formula(0, lambda dims, values: None))
    try:
        precision = chips.precision(msgspec.json.decode(dtypes)[formula.operand]) if dtypes else None
        flops = formula.flops(msgspec.json.decode(shapes), msgspec.json.decode(values or "[]")) if shapes else None
    except (msgspec.DecodeError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        return None, None  # the operator has another signature in this version
    return (flops if isinstance(flops, int) and 0 <= flops < 2**63 else None), precision


def _peaks(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """The peak in FLOP/s for each rank, device and precision, and its source."""
    used = on_devices(trace).select("rank", device="number", used=True).unique()
    named = trace.devices.filter(pl.col("name").is_not_null() & (pl.col("kind") != "cpu").fill_null(True))
    chips_used = (
        named.join(used, on=["rank", "device"], how="left")
        .filter(pl.col("used").is_not_null() | pl.col("used").is_null().all().over("rank"))
        .unique(["rank", "name"])
        .sort("rank", "name")
        .collect()
    )
    chips_of = {rank: part for (rank,), part in chips_used.group_by("rank")}
    distinct = rows.select("rank", "device", "precision").unique()
    peaks = [_peak(device, precision, chips_of.get(rank)) for rank, device, precision in distinct.iter_rows()]
    return distinct.with_columns(
        peak=pl.Series([peak for peak, _ in peaks], dtype=pl.Float64),
        peak_source=pl.Series([source for _, source in peaks], dtype=pl.String),
    )


def _peak(device: str | None, precision: str | None, rank_chips: pl.DataFrame | None) -> tuple[float | None, str]:
    if device == "cpu":
        return None, "no peak is known for a host"
    if rank_chips is None:
        return None, "the trace does not name the chip"
    if rank_chips.height > 1:
        return None, "several chips: " + ", ".join(rank_chips["name"])
    name, recorded = rank_chips.select("name", "peak_flops").row(0)
    chip = chips.find(name)
    if chip is not None and precision in chip.peak:
        return chip.peak[precision], f"{chip.name}, {precision}: {chip.source}"
    if recorded:
        return recorded, f"{name}: as recorded"
    return None, f"unknown chip: {name}" if chip is None else f"{chip.name}: no peak for {precision or 'an unknown data type'}"


def _joined(column: str) -> pl.Expr:
    texts = pl.col(column).drop_nulls().unique().sort()
    return pl.when(texts.len() > 0).then(texts.str.join("; ")).alias(column)
