"""Communication calls: collective, group and bytes."""

import math
import re
from collections.abc import Callable
from typing import Any

import msgspec
import polars as pl

from stepscope.model.memo import memoized
from stepscope.model.rank_tables import stored_rows
from stepscope.model.trace import Trace

# The first match in the letters of a name counts: `ncclDevKernel_ReduceScatter_Sum_f32`, `hcom_allReduce__868_0_1`, `gloo:all_reduce`.
_COLLECTIVES = {
    "barrier": "barrier",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall|all2all": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_recv",
    "send": "send",
    "recv|receive": "recv",
    "gather": "gather",
    "scatter": "scatter",
    "reduce": "reduce",
}
_ITEM_BYTES = {
    name: size
    for size, names in {
        1: "bool|byte|char|signedchar|unsignedchar|int8|uint8|float8_e4m3fn|float8_e4m3fnuz|float8_e5m2|float8_e5m2fnuz|float8_e8m0fnu",
        2: "half|bfloat16|float16|fp16|bfp16|bf16|short|shortint|int16|uint16",
        4: "float|float32|fp32|int|int32|uint32|unsignedint|complexhalf|complex<half>",
        8: "double|float64|fp64|long|longint|longlong|int64|uint64|unsignedlong|complexfloat|complex<float>",
        16: "complexdouble|complex<double>",
    }.items()
    for name in names.split("|")
}
# The host calls around a launch that describe the message, innermost first: the range of the backend, the record of PyTorch, the operator.
_DESCRIBING = ["nccl:", "record_param_comms", "c10d::"]
_DESCRIPTION = ["rank", "span", "shapes", "dtypes", "args"]
_ARGUMENTS = [
    *("Collective name", "Process Group Name", "Process Group ID", "Process Group Ranks", "Seq"),
    *("In msg nelems", "Out msg nelems", "dtype"),
    *("Src Rank", "Dst Rank"),  # of a send or a receive
    *("Group size", "rank_size"),
    *("count", "data_type", "wait_ns", "transit_ns", "idle_ns"),  # HCCL
]

_TIMES = {"wait_ns": "recorded_wait_ns", "transit_ns": "recorded_transit_ns", "idle_ns": "recorded_idle_ns"}


@memoized
def messages(trace: Trace) -> pl.DataFrame:
    """One row per communication span: collective, group, sequence number, bytes, and the recorded parts of its time; null if not recorded.

    Bytes are those of the span, else of the larger of input and output, from its args or from those of the host calls around its launch.
    """
    if (stored := stored_rows(trace, "rank_collectives")) is not None:
        names = {"sequence": "seq", **{name: f"recorded_{name}" for name in _TIMES}}
        return stored.drop("overlapped_ns", "has_times").rename(names)
    calls = (
        trace.table("spans")
        .filter(pl.col("kind") == "communication")
        .select(*_DESCRIPTION, "name", "step", "start_ns", "flow_in", "bytes", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .with_columns(pl.col("name", "shapes", "dtypes").cast(pl.String))
        .sort("rank", "start_ns", "span")
        .collect()
    )
    sources = [calls.select(*_DESCRIPTION, word=pl.lit(None, pl.String))]
    if calls["flow_in"].count():
        sources.append(_around(trace, calls))
    calls = calls.join(_descriptions(pl.concat(sources)), on=["rank", "span"], how="left", maintain_order="left")
    suffixes = trace.table("collectives").select("rank", "span", pl.col("group_suffix").cast(pl.String)).drop_nulls().collect()
    calls = calls.join(suffixes, on=["rank", "span"], how="left", maintain_order="left")
    calls = calls.join(_partners(trace), on=["rank", "name"], how="left", maintain_order="left")
    return _mapped(calls, "named", pl.String, _collective, "name").select(
        "rank",
        "span",
        "name",
        "step",
        "start_ns",
        "end_ns",
        "members",
        "seq",
        "src",
        "dst",
        "group_size",
        "partner",
        *_TIMES.values(),
        collective=pl.coalesce("collective", "named"),
        group=pl.coalesce("group", "group_suffix"),
        bytes=pl.coalesce("bytes", pl.col("elements") * pl.col("item_bytes")),
    )


def _partners(trace: Trace) -> pl.DataFrame:
    """rank, name, partner: the only other rank in the links of the calls of a name."""
    other = pl.when(pl.col("src") == pl.col("rank")).then("dst").otherwise("src")
    rows = trace.table("links").filter(pl.col("op").is_not_null(), other != pl.col("rank"))
    partners = rows.group_by("rank", name=pl.col("op").cast(pl.String)).agg(partners=other.unique())
    return partners.filter(pl.col("partners").list.len() == 1).select("rank", "name", partner=pl.col("partners").list.first()).collect()


def _around(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """For each call launched from the host, the calls around the launch that describe it."""
    host = trace.table("spans").filter(pl.col("kind").is_in(["api", "op", "annotation"]))
    # Few names, many spans: a name is compared once.
    names = host.select(pl.col("name").unique()).collect().with_columns(text=pl.col("name").cast(pl.String))
    launched = calls.filter(pl.col("flow_in").is_not_null()).select("rank", "span", at="flow_in")
    launches = host.filter(pl.col("span").is_in(launched["at"].unique().implode())).select("rank", "track", "start_ns", at="span")
    launches = launched.lazy().join(_with_thread(trace, launches), on=["rank", "at"]).sort("start_ns")
    around = [pl.DataFrame(schema={**dict(calls.select(_DESCRIPTION).schema), "word": pl.String}).lazy()]
    for prefix in _DESCRIBING:
        matching = names.filter(pl.col("text").str.starts_with(prefix))["name"]
        if matching.is_empty():
            continue
        describing = (
            _with_thread(trace, host.filter(pl.col("name").is_in(matching.implode())))
            .select("rank", "thread", "start_ns", "shapes", "dtypes", "args", word="name", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
            .with_columns(pl.col("shapes", "dtypes", "word").cast(pl.String))
            .sort("start_ns")
        )
        before = launches.join_asof(describing, on="start_ns", by=["rank", "thread"], check_sortedness=False)
        around.append(before.filter(pl.col("start_ns") < pl.col("end_ns")).select(*_DESCRIPTION, "word"))
    return pl.concat(around).collect()


def _with_thread(trace: Trace, spans: pl.LazyFrame) -> pl.LazyFrame:
    """The spans with the thread of their track: annotations of a thread are on a separate track."""
    threads = trace.table("tracks").select("rank", "track", thread=pl.concat_str("pid", "tid", separator=" "))
    known = pl.col("thread").fill_null(pl.col("track").cast(pl.String))
    return spans.join(threads, on=["rank", "track"], how="left").with_columns(thread=known)


def _descriptions(sources: pl.DataFrame) -> pl.DataFrame:
    """Per call, over all its descriptions: the first known collective, group and type, and the maximum of elements."""
    args = {key: pl.col("args").str.json_path_match(f"$['{key}']") for key in _ARGUMENTS}
    counts = [args[key].cast(pl.Int64, strict=False) for key in ("In msg nelems", "Out msg nelems", "count", "Seq")]
    members = args["Process Group Ranks"]
    src, dst = (args[key].cast(pl.Int32, strict=False) for key in ("Src Rank", "Dst Rank"))
    rows = sources.with_columns(
        src=pl.when(src >= 0).then(src),
        dst=pl.when(dst >= 0).then(dst),
        word=pl.coalesce(args["Collective name"], "word"),
        group=pl.coalesce(args["Process Group Name"], args["Process Group ID"]),
        members=members,
        type=pl.coalesce(args["dtype"], args["data_type"], "dtypes"),
        counted_elements=pl.max_horizontal(counts[:3]),
        seq=counts[3],
        group_size=pl.coalesce(
            *(args[key].cast(pl.Int64, strict=False) for key in ("Group size", "rank_size")),
            # A long list is abbreviated with dots.
            pl.when(~members.str.contains("...", literal=True)).then(members.str.count_matches(r"\d+").cast(pl.Int64)),
        ),
        **{name: args[key].cast(pl.Int64, strict=False) for key, name in _TIMES.items()},
    )
    rows = _mapped(rows, "shape_elements", pl.Int64, _elements, "shapes", "dtypes")
    rows = _mapped(rows, "item_bytes", pl.Int64, _item_bytes, "type")
    rows = _mapped(rows, "collective", pl.String, _collective, "word")
    return rows.group_by("rank", "span", maintain_order=True).agg(
        pl.col("collective", "group", "members", "seq", "src", "dst", "item_bytes", "group_size", *_TIMES.values()).drop_nulls().first(),
        elements=pl.max_horizontal("counted_elements", "shape_elements").max(),
    )


def _mapped(frame: pl.DataFrame, name: str, dtype: type[pl.DataType], function: Callable[..., object], *columns: str) -> pl.DataFrame:
    """The frame with a new column, computed once for each distinct value."""
    values = frame.select(columns).unique()
    result = pl.Series(name, [function(*row) for row in values.iter_rows()], dtype)
    return frame.join(values.with_columns(result), on=columns, how="left", nulls_equal=True, maintain_order="left")


def _collective(word: str | None) -> str | None:
    letters = re.sub("[^a-z0-9]", "", (word or "").partition("(")[0].lower())
    return next((collective for pattern, collective in _COLLECTIVES.items() if re.search(pattern, letters)), None)


def _elements(shapes: str | None, dtypes: str | None) -> int | None:
    """The elements of the largest argument; a list of tensors counts as one. An empty shape is a tensor only if it has a tensor type."""
    sizes = [
        sum(math.prod(tensor) for tensor in shape) if shape and isinstance(shape[0], list) else math.prod(shape)
        for shape, dtype in zip(_decoded(shapes), _decoded(dtypes), strict=False)
        if shape or _item_bytes(dtype)
    ]
    return max(sizes, default=None)


def _item_bytes(dtype: str | None) -> int | None:
    """The size of an element of a type, or of the first known type in a JSON list."""
    names = [str(name) for name in _decoded(dtype)] if dtype and dtype.startswith("[") else [dtype or ""]
    sizes = (_ITEM_BYTES.get(name.removeprefix("c10::").removeprefix("torch.").replace(" ", "").lower()) for name in names)
    return next((size for size in sizes if size), None)


def _decoded(text: str | None) -> list[Any]:
    try:
        return msgspec.json.decode(text or "[]", type=list[Any])
    except (msgspec.DecodeError, RecursionError):
        return []
