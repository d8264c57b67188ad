"""What each event of Ascend's timelines is: by its layer, and by what the framework, the type of a task or a table of kernels says."""

import numpy as np
import polars as pl

from stepscope import schema
from stepscope.readers import _kineto
from stepscope.readers._ascend_details import COMMUNICATION_CORES, Matches
from stepscope.readers._ascend_lanes import LANES, of_layers

# The level of a call of CANN, as raw data says it, by the word that timelines put before its name: `Node@launch`.
_LEVELS = {
    "AscendCL": "acl",
    "Model": "model",
    "Node": "node",
    "Hccl": "communication",
    "Communication": "communication",
    "Runtime": "runtime",
}
# The kind of a task on a stream, by its type (or its name, where a task has no operator), first match first.
TASK_KINDS = (
    (r"^MEMCPY|^Memcpy|^(SDMA|PCIE_DMA)_SQE$", "copy"),
    (r"^MEMSET|^Memset", "set"),
    (r"(?i)^(EVENT|NOTIFY)[_ ]WAIT|^STREAM_WAIT_EVENT", "sync"),
    (r"^(AI_CORE|AI_VECTOR_CORE|AI_CPU|AIV|AICPU|MIX_AIC|MIX_AIV|DSA|DSA_SQE|DVPP|HOST_CPU|KERNEL_\w+|VECTOR_CORE|Other)$", "kernel"),
)
# What the runtime calls a kernel, in the compiler's words.
KERNEL_CORES = {
    "KERNEL_AICORE": "AI_CORE",
    "KERNEL_AIVEC": "AI_VECTOR_CORE",
    "KERNEL_MIX_AIC": "MIX_AIC",
    "KERNEL_MIX_AIV": "MIX_AIV",
    "KERNEL_AICPU": "AI_CPU",
}
# Kernels of HCCL's own, on vector cores or AI CPUs: they carry out a transfer, or serve one, and compute nothing.
SERVING = "(Aiv|Aicpu)Kernel$"


def with_collectives(spans: pl.DataFrame, lanes: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Collectives that only the tags of a graph tell, `Reduce_ITERATION_NUMBER` among its iterations: on lanes of their own."""
    tags = (spans["category"].cast(pl.String) == "Reduce").fill_null(False) & spans["track"].is_in(of_layers(lanes, "iterations"))
    if not tags.any() or spans["track"].is_in(of_layers(lanes, "communication")).any():
        return spans, lanes
    more = lanes.filter(pl.col("track").is_in(spans["track"].filter(tags).unique().to_list())).with_row_index("nth")
    more = more.with_columns(old="track", track=(pl.col("nth") + 1).cast(pl.Int32) + lanes["track"].max())
    model = pl.col("label").str.extract(r"Model ID:\s*(\d+)")
    own = more.with_columns(layer=pl.lit("communication"), label=pl.format("Reduce of model {}", model.fill_null("?")))
    tracks = spans["track"].replace(more["old"], more["track"])
    name = spans["name"].cast(pl.String).str.replace(r"^Reduce_\d+_(\d+)$", "Reduce $1").cast(pl.Categorical)
    spans = spans.with_columns(track=pl.when(tags).then(tracks).otherwise("track"), name=pl.when(tags).then(name).otherwise(pl.col("name")))
    return spans, pl.concat([lanes, own.select(pl.col(column).cast(dtype) for column, dtype in LANES.items())])


def classified(spans: pl.DataFrame, lanes: pl.DataFrame, said: pl.DataFrame, matches: Matches) -> pl.DataFrame:
    """The kind of each span: by layer, then by what the framework, the task type or the table of kernels says."""
    layer = spans.select("track").join(lanes.select("track", "layer", "process"), on="track", how="left", maintain_order="left")
    name, category = pl.col("name").cast(pl.String), pl.col("category").cast(pl.String)
    marked = spans.with_columns(
        category=pl.when(pl.Series(layer["process"] == "CPU OP")).then(pl.lit("cpu_op")).otherwise(category).cast(pl.Categorical)
    )
    framework = _kineto.classified(marked)["kind"].cast(pl.String)
    core = matches.of("core", spans.height)
    frame = spans.with_columns(
        layer["layer"], framework.alias("framework"), said["task_type"], core, pl.Series("told", np.zeros(spans.height, np.bool_))
    )
    frame = frame.with_columns(told=pl.Series("told", np.isin(np.arange(spans.height), matches.row.to_numpy())))
    word = pl.coalesce("task_type", name)
    task = pl.lit("other")
    for pattern, one in reversed(TASK_KINDS):
        task = pl.when(word.str.contains(pattern) | name.str.contains(pattern)).then(pl.lit(one)).otherwise(task)
    # A task that belongs to no operator bears the name of its type.
    nameless = name.str.contains(r"^[A-Z0-9_]+$|^Notify |^Write Value|^SDMA$|^Other$")
    told = pl.col("told")
    kind = (
        pl.when(pl.col("layer").is_in(["hardware", "elsewhere"]))
        .then(
            pl.when(told & pl.col("core").is_in(COMMUNICATION_CORES) & pl.col("task_type").is_null())
            .then(pl.lit("communication"))
            .when(name.str.contains(SERVING))
            .then(pl.lit("other"))
            .when(told)
            .then(pl.lit("kernel"))
            .when((task == "kernel") & nameless)
            .then(pl.lit("other"))
            .otherwise(task)
        )
        .when(pl.col("layer") == "communication")
        .then(pl.lit("communication"))
        .when(pl.col("layer") == "planes")
        .then(pl.when(name.str.contains("(?i)wait")).then(pl.lit("sync")).otherwise(pl.lit("other")))
        .when(pl.col("layer") == "cann")
        .then(pl.when(name.str.contains("(?i)synchronize")).then(pl.lit("sync")).otherwise(pl.lit("api")))
        .when(pl.col("layer") == "iterations")
        .then(
            pl.when(category == "Iteration Time")
            .then(pl.lit("step"))
            .when(category.str.starts_with("GetNext"))
            .then(pl.lit("data"))
            .otherwise(pl.lit("annotation"))
        )
        .when(pl.col("layer") == "scopes")
        .then(pl.lit("scope"))
        .when(name.str.contains(r"^ProfilerStep#\d+"))
        .then(pl.lit("step"))
        .when(name.str.starts_with("enumerate(DataLoader)#"))
        .then(pl.lit("data"))
        .when(name.str.starts_with("Optimizer."))
        .then(pl.lit("annotation"))
        .when(category.is_in(["enqueue", "dequeue"]))
        .then(pl.lit("api"))
        .otherwise("framework")
    )
    kinds = frame.select(kind.cast(schema.Kind).alias("kind")).to_series()
    # A transfer's own copies stand on a plane and on the stream behind it: they are part of the transfer.
    moment = ["start_ns", "dur_ns"]
    carried = frame.filter(pl.col("layer") == "planes").select(moment).unique().with_columns(carried=True)
    copies = frame.select(*moment, "layer", kinds.cast(pl.String)).join(carried, on=moment, how="left", maintain_order="left")
    again = copies.select((pl.col("layer") == "hardware") & pl.col("carried").is_not_null() & pl.col("kind").is_in(["copy", "set"]))
    kinds = kinds.set(again.to_series(), "other")
    device_work = kinds.cast(pl.String).is_in(["kernel", "communication"])
    scoped = pl.when(pl.Series(device_work) & name.str.contains("/")).then(name.str.extract(r"^(.*)/[^/]*$").cast(pl.Categorical))
    bare, level = _calls(spans["name"])
    called = pl.Series(layer["layer"] == "cann") & level.is_not_null()
    words = pl.coalesce(
        pl.Series("core", core), pl.Series("task_type", said["task_type"]), pl.when(called).then(level.cast(pl.String)), category
    )
    return spans.with_columns(
        kind=kinds,
        name=pl.when(called).then(bare).otherwise("name"),
        module=pl.coalesce("module", scoped),
        category=pl.when(kinds == "kernel").then(words.replace(KERNEL_CORES)).otherwise(words).cast(pl.Categorical),
    ).drop("instant", "known")


def _calls(names: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Calls as raw data names them, and their levels: of `Node@launch`, `launch` and `node`. Each distinct name is looked at once."""
    distinct = names.unique().drop_nulls()
    words = distinct.cast(pl.String).str.extract_groups(rf"^({'|'.join(_LEVELS)})@(.+)$").struct
    level = words.field("1").replace_strict(_LEVELS, default=None, return_dtype=pl.String)
    rest = pl.select(pl.coalesce(words.field("2"), distinct.cast(pl.String))).to_series()
    bare, levels = (
        names.replace_strict(distinct, found.cast(pl.Categorical), default=None, return_dtype=pl.Categorical) for found in (rest, level)
    )
    return bare, levels
