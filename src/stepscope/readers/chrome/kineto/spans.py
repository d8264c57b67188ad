"""What each span of torch.profiler is: its kind, the span around it, its launch and its operator."""

from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.model import intervals, schema
from stepscope.model.intervals import Ints
from stepscope.model.steps.step_assignment import DEVICE_WORK, nearest_around

# The first rule that matches decides: category, name, kind. Older releases of PyTorch wrote other categories.
_RULES = (
    (r"cpu_op", r"^nn\.Module: ", "scope"),  # recorded by stepscope
    (r"cpu_op|operator|op", r"", "op"),
    (r"user_annotation", r"^ProfilerStep#\d+", "step"),
    (r"user_annotation|cpu_op", r"^enumerate\(DataLoader\)#", "data"),
    (r"user_annotation", r"^(gloo|mpi|ucc):", "communication"),
    (r"user_annotation|gpu_user_annotation|annotation", r"", "annotation"),
    (r"python_function", r"^nn\.Module: ", "scope"),
    (r"python_function|python|fee", r"", "python"),
    (r"kernel", r"(?i)^(void )?(nccl|rccl|hccl|hcom_|msccl|oneccl|mccl)", "communication"),
    (r"collective_comm|communication", r"", "communication"),
    (r"kernel|hpu_op|mtia_ccp_events", r"", "kernel"),
    (r"gpu_memcpy|memcpy|concurrent_kernel_memcpy", r"", "copy"),
    (r"gpu_memset|memset", r"", "set"),
    (r"(\w+_)?(runtime|driver)", r"(?i)synchronize", "sync"),
    (r"(\w+_)?(runtime|driver)", r"", "api"),
    (r"cuda_sync|\w+_sync", r"", "sync"),
)


def classify_spans(spans: pl.DataFrame) -> pl.DataFrame:
    """Spans with their kind, decided once per distinct category and name."""
    distinct = spans.select("category", "name").unique()
    category, name = pl.col("category").cast(pl.String).str.to_lowercase(), pl.col("name").cast(pl.String)
    kind = pl.lit("other")
    for categories, names, rule_kind in reversed(_RULES):
        matches = category.str.contains(f"^({categories})$") & (name.str.contains(names) if names else True)
        kind = pl.when(matches).then(pl.lit(rule_kind)).otherwise(kind)
    # Where stepscope itself recorded the modules, those of PyTorch are ordinary Python frames.
    module = name.str.starts_with("nn.Module: ")
    recorded_twice = module & (category == "python_function") & (module & (category == "cpu_op")).any()
    kinds = distinct.with_columns(kind=pl.when(recorded_twice).then(pl.lit("python")).otherwise(kind).cast(schema.Kind))
    by_rule = spans.select("category", "name").join(kinds, on=["category", "name"], how="left", maintain_order="left")["kind"]
    hint = pl.when(pl.col("hint_kind").is_in(schema.KINDS)).then("hint_kind")
    by_phase = pl.when("instant").then(pl.lit("instant")).when(~pl.col("known_phase")).then(pl.lit("other"))
    kind = pl.coalesce(hint, by_phase).cast(schema.Kind).fill_null(by_rule).fill_null(pl.lit("other", schema.Kind))
    return spans.with_columns(kind=kind).drop("instant", "known_phase")


def nest_spans(spans: pl.DataFrame, memory: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Spans with depth, parent and self time, and memory events with the span around each."""
    count, duration = spans.height, spans["dur_ns"].to_numpy()
    nesting = _nest_with_instants(spans, memory["track"].to_numpy(), memory["at_ns"].to_numpy())
    # Kernels of one stream may overlap (programmatic dependent launch), but none is part of another.
    launched = pl.col("kind").is_in(DEVICE_WORK) & pl.col("correlation").is_not_null()
    on_device = spans.select(launched | pl.col("kind").is_in(["kernel", "copy", "set"])).to_series().to_numpy()
    return (
        spans.with_columns(
            pl.Series("span", np.arange(count)),
            pl.Series("depth", nesting.depth[:count].astype(np.int32)),
            optional_rows("parent", np.where(on_device, -1, nesting.parent[:count])),
            pl.Series("self_ns", np.where(on_device, duration, nesting.self_time[:count])),
        ),
        memory.with_columns(optional_rows("parent", nesting.parent[count:])),
    )


def _nest_with_instants(spans: pl.DataFrame, track: Ints, at: Ints) -> intervals.Nesting:
    """The nesting of the spans, followed by that of instants on these tracks."""
    start = spans["start_ns"].to_numpy()
    return intervals.nest(
        np.concatenate((spans["track"].to_numpy(), track)).astype(np.int64),
        np.concatenate((start, at)),
        np.concatenate((start + spans["dur_ns"].to_numpy(), at)),
    )


def optional_rows(name: str, rows: Ints) -> pl.Series:
    """Row numbers, with null for -1."""
    return pl.Series(name, rows).set(pl.Series(rows < 0), None)


def link_spans(spans: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """Spans with `flow_in` (the launch of device work, the start of a flow), `op` (the operator of device work) and `op_type`."""
    ids = spans.lazy().select("span", "kind", "correlation", "external")
    device = ids.filter(pl.col("kind").is_in(DEVICE_WORK) & pl.col("correlation").is_not_null()).collect()

    def first_match(kinds: list[str], key: str) -> pl.Series:
        """For each device span, the first span of these kinds with the same key."""
        candidates = ids.filter(pl.col("kind").is_in(kinds)).select(key, match="span")
        matches = candidates.join(device.lazy().select(key), on=key, how="semi").collect().unique(key, keep="first", maintain_order=True)
        return device.select(key).join(matches, on=key, how="left", maintain_order="left")["match"]

    device = device.with_columns(launch=first_match(["api", "sync"], "correlation"), op=first_match(["op"], "external"))
    flow_in, op = np.full(spans.height, -1, np.int64), np.full(spans.height, -1, np.int64)
    arrows = _match_flows(spans, flows)
    flow_in[arrows.end] = arrows.start
    launched = device.filter(pl.col("launch").is_not_null())
    flow_in[launched["span"].to_numpy()] = launched["launch"].to_numpy()
    # Some releases write the correlation in place of the operator's number; then the launch leads to the operator.
    numbered = device.filter(pl.col("op").is_not_null() & pl.col("external").ne_missing(pl.col("correlation")))
    op[numbered["span"].to_numpy()] = numbered["op"].to_numpy()
    # Where the source numbers no operators, the operator is the one around the launch.
    is_op = (spans["kind"] == "op").to_numpy()
    parent = spans["parent"].fill_null(-1).to_numpy()
    missing = np.flatnonzero(spans.select(pl.col("kind").is_in(DEVICE_WORK)).to_series().to_numpy() & (op < 0) & (flow_in >= 0))
    if len(missing):
        op[missing] = nearest_around(is_op, parent, flow_in[missing])
    op[is_op] = -1
    op_names = spans["name"].gather(np.where(op >= 0, op, 0))
    return spans.with_columns(
        optional_rows("flow_in", flow_in),
        optional_rows("op", op),
        op_type=pl.when(pl.col("hint_kind").is_not_null())
        .then(pl.col("hint_type").cast(pl.Categorical))
        .when(pl.Series(is_op))
        .then("name")
        .when(pl.Series(op >= 0))
        .then(op_names),
    )


class _Arrows(NamedTuple):
    """Rows of spans: where flows end, and where they start."""

    end: Ints
    start: Ints


def _match_flows(spans: pl.DataFrame, flows: pl.DataFrame) -> _Arrows:
    # Launches are matched by correlation, which every release writes; their flows repeat it.
    flows = flows.filter(pl.col("category").cast(pl.String) != "ac2g") if spans["correlation"].null_count() < spans.height else flows
    if flows.height == 0:
        return _Arrows(np.empty(0, np.int64), np.empty(0, np.int64))
    ends = flows.select("phase", "category", "flow", "at_ns", bound=flow_spans(spans, flows)).with_row_index("row")
    ends = ends.filter(pl.col("bound") >= 0).sort("at_ns", maintain_order=True)
    starts = ends.filter(pl.col("phase").is_in(["s", "t"]))
    ends = ends.filter(pl.col("phase").is_in(["t", "f"]))
    pairs = ends.join_asof(
        starts.select("category", "flow", "at_ns", cause="bound", start_row="row"),
        on="at_ns",
        by=["category", "flow"],
        check_sortedness=False,
    ).filter(pl.col("cause").is_not_null() & (pl.col("start_row") != pl.col("row")) & (pl.col("cause") != pl.col("bound")))
    return _Arrows(pairs["bound"].to_numpy(), pairs["cause"].to_numpy())


def flow_spans(spans: pl.DataFrame, flows: pl.DataFrame) -> pl.Series:
    """The row of the span of each flow event: the outermost that starts then on its track, else the innermost around it; -1 for none."""
    start, times = spans["start_ns"].to_numpy(), np.unique(flows["at_ns"].to_numpy())
    at_flow = times[np.minimum(np.searchsorted(times, start), len(times) - 1)] == start  # a search needs far less memory than a join
    starting = (
        spans.select("track", "depth", at_ns="start_ns", bound="span")
        .filter(pl.Series(at_flow))
        .sort("depth")
        .unique(["track", "at_ns"], keep="first", maintain_order=True)
    )
    exact = flows.select("track", "at_ns").join(starting, on=["track", "at_ns"], how="left", maintain_order="left")
    bound = exact["bound"].fill_null(-1).to_numpy().copy()
    rest = np.flatnonzero(bound < 0)
    if len(rest):
        nesting = _nest_with_instants(spans, flows["track"].to_numpy()[rest], flows["at_ns"].to_numpy()[rest])
        bound[rest] = nesting.parent[spans.height :]
    return pl.Series("bound", bound)
