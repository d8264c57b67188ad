"""The kind of each span on Ascend's timelines: from its layer, the framework's category, the task type or the kernel table."""

import numpy as np
import polars as pl

from stepscope.model import schema
from stepscope.readers.ascend.common.kernel_details import Matches
from stepscope.readers.ascend.common.tables import COMMUNICATION_CORES
from stepscope.readers.ascend.common.tracks import TRACK_COLUMNS, tracks_in
from stepscope.readers.chrome.kineto.spans import classify_spans

# Timelines put the level of a CANN call before its name, `Node@launch`. These are the levels in the words of raw data.
_LEVELS = {
    "AscendCL": "acl",
    "Model": "model",
    "Node": "node",
    "Hccl": "communication",
    "Communication": "communication",
    "Runtime": "runtime",
}
# The kind of a task on a stream by its type, or by its name if the task has no operator. The first match wins.
_TASK_KINDS = (
    (r"^MEMCPY|^Memcpy|^(SDMA|PCIE_DMA)_SQE$", "copy"),
    (r"^MEMSET|^Memset", "set"),
    (r"(?i)^(EVENT|NOTIFY)[_ ]WAIT|^STREAM_WAIT_EVENT", "sync"),
    (r"^(AI_CORE|AI_VECTOR_CORE|AI_CPU|AIV|AICPU|MIX_AIC|MIX_AIV|DSA|DSA_SQE|DVPP|HOST_CPU|KERNEL_\w+|VECTOR_CORE|Other)$", "kernel"),
)
# The runtime's words for kernels, in the compiler's words.
KERNEL_CORES = {
    "KERNEL_AICORE": "AI_CORE",
    "KERNEL_AIVEC": "AI_VECTOR_CORE",
    "KERNEL_MIX_AIC": "MIX_AIC",
    "KERNEL_MIX_AIV": "MIX_AIV",
    "KERNEL_AICPU": "AI_CPU",
}
# Kernels of HCCL on vector cores or AI CPUs: they carry out a transfer, or serve one, and compute nothing.
SERVING = "(Aiv|Aicpu)Kernel$"


def task_kind(*words: pl.Expr) -> pl.Expr:
    """The kind of a task by its type or name; `other` if no word is known."""
    rules = ((pl.any_horizontal(word.str.contains(pattern) for word in words), kind) for pattern, kind in _TASK_KINDS)
    return first_match(*rules, default="other")


def transfer_task_kind(name: pl.Expr) -> pl.Expr:
    """The kind of a task that carries out communication."""
    return first_match((name.str.contains("(?i)wait"), "sync"), default="other")


def host_call_kind(name: pl.Expr, default: pl.Expr) -> pl.Expr:
    """The kind of a framework span with one of PyTorch's own names."""
    return first_match(
        (name.str.contains(r"^ProfilerStep#\d+"), "step"),
        (name.str.starts_with("enumerate(DataLoader)#"), "data"),
        (name.str.starts_with("Optimizer."), "annotation"),
        default=default,
    )


def cann_call_kind(name: pl.Expr) -> pl.Expr:
    return first_match((name.str.contains("(?i)synchronize"), "sync"), default="api")


def first_match(*rules: tuple[pl.Expr, pl.Expr | str], default: pl.Expr | str) -> pl.Expr:
    """The value of the first rule (condition, value) that holds."""
    result = pl.lit(default) if isinstance(default, str) else default
    for condition, value in reversed(rules):
        result = pl.when(condition).then(pl.lit(value) if isinstance(value, str) else value).otherwise(result)
    return result


def separate_collectives(spans: pl.DataFrame, tracks: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Collectives that only tags of a graph's iterations show (`Reduce_ITERATION_NUMBER`), moved to tracks of their own."""
    tags = (spans["category"].cast(pl.String) == "Reduce").fill_null(False) & spans["track"].is_in(tracks_in(tracks, "iterations"))
    if not tags.any() or spans["track"].is_in(tracks_in(tracks, "communication")).any():
        return spans, tracks
    added = tracks.filter(pl.col("track").is_in(spans["track"].filter(tags).unique().to_list())).with_row_index("nth")
    added = added.with_columns(old="track", track=(pl.col("nth") + 1).cast(pl.Int32) + tracks["track"].max())
    model = pl.col("label").str.extract(r"Model ID:\s*([0-9]+)")
    added = added.with_columns(layer=pl.lit("communication"), label=pl.format("Reduce of model {}", model.fill_null("?")))
    numbers = spans["track"].replace(added["old"], added["track"])
    name = spans["name"].cast(pl.String).str.replace(r"^Reduce_\d+_(\d+)$", "Reduce $1").cast(pl.Categorical)
    spans = spans.with_columns(
        track=pl.when(tags).then(numbers).otherwise("track"), name=pl.when(tags).then(name).otherwise(pl.col("name"))
    )
    return spans, pl.concat([tracks, added.select(pl.col(column).cast(dtype) for column, dtype in TRACK_COLUMNS.items())])


def classify(spans: pl.DataFrame, tracks: pl.DataFrame, task_args: pl.DataFrame, matches: Matches) -> pl.DataFrame:
    """Spans with their kind, the category in the compiler's words, and the scope of kernels whose name is a path."""
    layers = spans.select("track").join(tracks.select("track", "layer", "process"), on="track", how="left", maintain_order="left")
    category = pl.col("category").cast(pl.String)
    marked = pl.when(pl.Series(layers["process"] == "CPU OP")).then(pl.lit("cpu_op")).otherwise(category).cast(pl.Categorical)
    core = matches.values("core", spans.height)
    frame = spans.with_columns(
        layers["layer"],
        classify_spans(spans.with_columns(category=marked))["kind"].cast(pl.String).alias("framework"),
        task_args["task_type"],
        core,
        pl.Series("in_table", np.isin(np.arange(spans.height), matches.row.to_numpy())),
    )
    kinds = frame.select(_kind().cast(schema.Kind).alias("kind")).to_series()
    kinds = kinds.set(_copies_of_transfers(frame, kinds), "other")
    name = pl.col("name").cast(pl.String)
    on_device = pl.Series(kinds.cast(pl.String).is_in(["kernel", "communication"]))
    scope = pl.when(on_device & name.str.contains("/")).then(name.str.extract(r"^(.*)/[^/]*$").cast(pl.Categorical))
    bare_name, level = _split_levels(spans["name"])
    is_call = pl.Series(layers["layer"] == "cann") & level.is_not_null()
    words = pl.coalesce(
        pl.Series("core", core), pl.Series("task_type", task_args["task_type"]), pl.when(is_call).then(level.cast(pl.String)), category
    )
    return spans.with_columns(
        kind=kinds,
        name=pl.when(is_call).then(bare_name).otherwise("name"),
        module=pl.coalesce("module", scope),
        category=pl.when(kinds == "kernel").then(words.replace(KERNEL_CORES)).otherwise(words).cast(pl.Categorical),
    ).drop("instant", "known_phase")


def _kind() -> pl.Expr:
    name, category, layer = pl.col("name").cast(pl.String), pl.col("category").cast(pl.String), pl.col("layer")
    iteration = first_match((category == "Iteration Time", "step"), (category.str.starts_with("GetNext"), "data"), default="annotation")
    return first_match(
        (layer.is_in(["hardware", "untimed"]), _stream_kind(name)),
        (layer == "communication", "communication"),
        (layer == "planes", transfer_task_kind(name)),
        (layer == "cann", cann_call_kind(name)),
        (layer == "iterations", iteration),
        (layer == "scopes", "scope"),
        default=host_call_kind(name, first_match((category.is_in(["enqueue", "dequeue"]), "api"), default=pl.col("framework"))),
    )


def _stream_kind(name: pl.Expr) -> pl.Expr:
    in_table, task_type = pl.col("in_table"), pl.col("task_type")
    task = task_kind(pl.coalesce(task_type, name), name)
    # A task without an operator has its type as its name.
    nameless = name.str.contains(r"^[A-Z0-9_]+$|^Notify |^Write Value|^SDMA$|^Other$")
    return first_match(
        (in_table & pl.col("core").is_in(COMMUNICATION_CORES) & task_type.is_null(), "communication"),
        (name.str.contains(SERVING), "other"),
        (in_table, "kernel"),
        ((task == "kernel") & nameless, "other"),
        default=task,
    )


def _copies_of_transfers(frame: pl.DataFrame, kinds: pl.Series) -> pl.Series:
    """Which spans are copies on a stream that a plane shows, too: they are part of the transfer."""
    time = ["start_ns", "dur_ns"]
    on_plane = frame.filter(pl.col("layer") == "planes").select(time).unique().with_columns(on_plane=True)
    copies = frame.select(*time, "layer", kinds.cast(pl.String)).join(on_plane, on=time, how="left", maintain_order="left")
    shown = (pl.col("layer") == "hardware") & pl.col("on_plane").is_not_null() & pl.col("kind").is_in(["copy", "set"])
    return copies.select(shown).to_series()


def _split_levels(names: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Names of calls without their level, and the level: `launch` and `node` of `Node@launch`. Each distinct name is parsed once."""
    distinct = names.unique().drop_nulls()
    words = distinct.cast(pl.String).str.extract_groups(rf"^({'|'.join(_LEVELS)})@(.+)$").struct
    level = words.field("1").replace_strict(_LEVELS, default=None, return_dtype=pl.String)
    rest = pl.select(pl.coalesce(words.field("2"), distinct.cast(pl.String))).to_series()
    bare, levels = (
        names.replace_strict(distinct, values.cast(pl.Categorical), default=None, return_dtype=pl.Categorical) for values in (rest, level)
    )
    return bare, levels
