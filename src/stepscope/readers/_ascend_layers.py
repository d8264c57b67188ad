"""From columns of Chrome events to the tables, for what Ascend's tools write: msprof, torch_npu and MindSpore.

The name of a process tells its layer (its number differs from version to version):

    Ascend Hardware             streams of a device; beside them a thread of iterations, `Step Trace(Model ID:1)`
    HCCL, Communication         operators (`Group 0 Communication`, `Communication Kernel`) and the planes that carry them out
    CANN                        calls of the host into Ascend's libraries
    Overlap Analysis            unions of the above: left out, our own analyses make them
    AI Core Freq, HBM, ...      counters
    CPU OP, Scope Layer         MindSpore's operators on the host, and the scopes of what ran
    anything else               the framework: Python, MindSpore
"""

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.errors import DataError
from stepscope.readers import Options, _ascend_steps, _kineto
from stepscope.readers._ascend_details import COMMUNICATION_CORES, NO_DETAILS, Details, Matches, end, with_details
from stepscope.readers._ascend_kinds import SERVING, classified, with_collectives
from stepscope.readers._ascend_lanes import devices_of, lanes_of, of_layers, tracks_of
from stepscope.readers._ascend_samples import samples_of
from stepscope.readers._ascend_texts import listed
from stepscope.readers._chrome_events import Report
from stepscope.readers._kineto import Problem
from stepscope.trace import Meta, Trace


def assemble(
    path: Path,
    reports: list[Report],
    problems: list[Problem],
    options: Options,
    *,
    format: str,
    details: Details = NO_DETAILS,
    rank: int | None = None,
    device: int = 0,
    offset_ns: int = 0,
) -> Trace:
    """The trace of decoded events whose columns lie in the scratch folder. `offset_ns` brings their times to the time of day.

    `device` is the one that streams are of where the file itself does not number them.
    """
    scratch = options.scratch
    tracks: dict[tuple[int | str, int | str, str], int] = {}
    local = [np.array([tracks.setdefault(tuple(key), len(tracks)) for key in report.tracks], np.int32) for report in reports]  # type: ignore[arg-type]
    problems = [*problems, *(_kineto.close_pairs(scratch, local) if _kineto.files(scratch, "spans") else [])]
    lanes = lanes_of(tracks, reports, device)
    matches, lanes = with_details(scratch, local, lanes, details, problems)
    if not _kineto.files(scratch, "spans"):
        raise DataError(path, "nothing that ran is in it")
    spans = _kineto.load(scratch, "spans", local).drop("external")
    spans, lanes = with_collectives(spans, lanes)
    said = _said(scratch, local, lanes, spans.height)
    spans = classified(spans.with_columns(correlation=said["connection"]), lanes, said, matches)
    spans, _ = _kineto.nested(spans, pl.DataFrame(schema={"track": pl.Int32, "at_ns": pl.Int64}))
    spans = _linked(spans, _kineto.load(scratch, "flows", local), lanes, matches)
    spans = _kineto.scoped(spans)
    iterations, unplaced = _iterations(spans, said, lanes), spans["track"].is_in(of_layers(lanes, "elsewhere"))
    numbered = matches.of("step", spans.height).cast(pl.Int32, strict=False).set(unplaced | (spans["kind"] == "step").any(), None)
    if iterations.height:
        steps, remark, on_device = iterations, None, True
    elif numbered.count():
        steps, on_device = _ascend_steps.numbered(spans, numbered), True
        remark = Problem(
            details.file, "only the steps of kernels are known: each lasts from its first kernel's start to its last one's end", 0
        )
    else:
        (steps, remark), on_device = _kineto.steps_of(spans), False
    problems += [remark] if remark else []
    if not on_device and _ascend_steps.is_of_cann(spans, steps):
        steps, spans = _ascend_steps.whole(spans), spans.with_columns(step=pl.lit(1, pl.Int32))
    else:
        spans = _stepped(spans, steps, on_device)
    own = pl.coalesce(numbered, "step") if not iterations.height else pl.col("step")
    spans = spans.with_columns(step=pl.when(~unplaced).then(own))
    rank = next((number for number in (rank, options.rank) if number is not None and number >= 0), 0)
    links = _links(spans, said, lanes)
    drop = _left_out(spans, lanes)
    at = pl.col("start_ns") + offset_ns
    tables: dict[str, pl.DataFrame | pl.LazyFrame] = {
        "spans": _with_passing(spans, scratch, matches, said).filter(~pl.Series(drop)).with_columns(start_ns=at),
        "tracks": tracks_of(lanes, spans.filter(~pl.Series(drop))),
        "steps": steps.with_columns(pl.col(name) + offset_ns for name in steps.columns if name.endswith("_ns")),
        "counters": samples_of(_kineto.load(scratch, "counters", local), lanes).with_columns(at_ns=pl.col("at_ns") + offset_ns),
        "links": links,
        "devices": devices_of(lanes),
        "problems": pl.DataFrame(problems, schema={"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row").with_columns(
            file=pl.lit(str(path))
        ),
    }
    ranked = {name: frame.lazy().with_columns(rank=pl.lit(rank, dtype=pl.Int32)) for name, frame in tables.items()}
    words = set(lanes["process"].drop_nulls())
    framework = "mindspore" if words & {"MindSpore", "CPU OP", "Scope Layer"} else "pytorch" if (spans["kind"] == "op").any() else ""
    return Trace(ranked, Meta(format=format, framework=framework, ranks=[rank]))


# What the arguments of tasks say, and which layers' do.
_SAID = {
    "connection": (r'"connection_id":\s*"?(\d+)', pl.Int64),
    "task_type": (r'"[Tt]ask [Tt]ype":\s*"([^"]*)"', pl.String),
    "bytes": (r'"size\((?:Byte|B)\)":\s*"?(\d+)', pl.Int64),
    "src": (r'"src rank":\s*"?(\d+)', pl.Int64),
    "dst": (r'"dst rank":\s*"?(\d+)', pl.Int64),
    "transport": (r'"transport type":\s*"([^"]*)"', pl.String),
    "link": (r'"link type":\s*"([^"]*)"', pl.String),
    "iteration": (r'"Iteration ID":\s*"?(\d+)', pl.Int64),
    "fp": (r'"FP Start":\s*"?(\d+(?:\.\d+)?)', pl.String),
    "bp": (r'"BP End":\s*"?(\d+(?:\.\d+)?)', pl.String),
}


def _said(scratch: Path, local: list[NDArray[np.int32]], lanes: pl.DataFrame, height: int) -> pl.DataFrame:
    """The words of _SAID of every span; null on the framework's tracks, whose arguments are not looked at."""
    wanted = of_layers(lanes, "hardware", "communication", "planes", "cann", "iterations")
    parts = []
    for file in _kineto.files(scratch, "spans"):
        number = int(file.suffixes[0][1:])
        frame = pl.read_ipc(file, columns=["track", "args"])
        track = local[number][frame["track"].to_numpy()] if number < len(local) else frame["track"].to_numpy()
        text = frame["args"].set(pl.Series(~np.isin(track, wanted)), None)
        parts.append(pl.select(_cast(text.str.extract(pattern), dtype).alias(name) for name, (pattern, dtype) in _SAID.items()))
    return pl.concat(parts)


def _cast(text: pl.Series, dtype: type[pl.DataType]) -> pl.Series:
    return text if dtype == pl.String else text.cast(dtype, strict=False)


def _linked(spans: pl.DataFrame, flows: pl.DataFrame, lanes: pl.DataFrame, matches: Matches) -> pl.DataFrame:
    """What caused what: a task's launch in CANN, the framework's operator behind it, a backward operator's forward one."""
    flow_in, op = np.full(spans.height, -1, np.int64), np.full(spans.height, -1, np.int64)
    is_op = (spans["kind"] == "op").to_numpy()
    if flows.height:
        of = (
            _kineto.bound_spans(spans, flows)
            .with_columns(flows["at_ns", "phase", "flow", "category"].get_columns())
            .filter(pl.col("bound") >= 0)
        )
        of = of.with_columns(pl.col("category").cast(pl.String)).filter(~pl.col("category").str.starts_with("Data_aug"))
        starts = of.filter(pl.col("phase") == "s").sort("at_ns")
        # A task never starts before its launch, but a backward operator's flow may end before it starts in some versions.
        ends = of.filter(pl.col("phase").is_in(["t", "f"])).select("category", "flow", end="bound")
        pairs = ends.join(
            starts.select("category", "flow", start="bound").unique(["category", "flow"], keep="first"), on=["category", "flow"]
        ).filter(pl.col("start") != pl.col("end"))
        to_operator = pairs["category"].is_in(["async_npu", "mindspore_to_npu"])
        for links, target in ((pairs.filter(~to_operator), flow_in), (pairs.filter(to_operator), op)):
            target[links["end"].to_numpy()] = links["start"].to_numpy()
    # Where there is no arrow, a launch and its task have the same connection.
    place = spans.select("track").join(lanes.select("track", "layer"), on="track", how="left", maintain_order="left")["layer"]
    numbered = spans.select("span", "correlation").with_columns(place).filter(pl.col("correlation").is_not_null())
    calls = numbered.filter(pl.col("layer") == "cann").unique("correlation", keep="first", maintain_order=True)
    tasks = numbered.filter(pl.col("layer").is_in(["hardware", "communication"]) & pl.Series(flow_in[numbered["span"].to_numpy()] < 0))
    launched = tasks.join(calls.select("correlation", cause="span"), on="correlation")
    flow_in[launched["span"].to_numpy()] = launched["cause"].to_numpy()
    parent = spans["parent"].fill_null(-1).to_numpy()
    known = np.flatnonzero(op >= 0)
    op[known] = _kineto.nearest(is_op, parent, op[known])
    # Without a flow from the launch, the operator is at least the cause.
    bare = (flow_in < 0) & (op >= 0)
    flow_in[bare] = op[bare]
    op[is_op] = -1
    # What is done on the host has its own name as its type, unless that is a path; device work that of its operator.
    name = pl.col("name").cast(pl.String)
    own = pl.when(name.str.contains("/")).then(name.str.extract(r"([^/]*?)(?:-op\d+)?(?:_\d+)?$")).otherwise(name)
    of_op = spans["name"].cast(pl.String).gather(np.maximum(op, 0)).set(pl.Series(op < 0), None)
    told = pl.Series(matches.of("op_type", spans.height))
    # A kernel inside a transfer is told under the transfer's type; it is not one.
    inside = (spans["kind"] == "kernel") & matches.of("core", spans.height).is_in(COMMUNICATION_CORES).fill_null(False)
    told = told.zip_with(~inside, spans["name"].cast(pl.String))
    device = pl.col("kind").is_in(["kernel", "communication"]) | ((pl.col("kind") == "other") & name.str.contains(SERVING))
    path = pl.when(device & name.str.contains("/")).then(own)
    kernel = pl.when(pl.col("kind") == "kernel").then(name)  # of which nothing else is known
    op_type = (
        pl.when(pl.Series(is_op)).then(own).when(device).then(pl.coalesce(told, path, of_op, kernel)).when(pl.Series(op >= 0)).then(name)
    )
    return spans.with_columns(_kineto.or_null("flow_in", flow_in), _kineto.or_null("op", op), op_type=op_type.cast(pl.Categorical))


def _iterations(spans: pl.DataFrame, said: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Steps as the device marked them; those of several models are counted together, in the order in which they ended."""
    rows = spans.select("track", "kind", "start_ns", "dur_ns").with_columns(said["iteration", "fp", "bp"].get_columns())
    models = lanes.filter(pl.col("layer") == "iterations").select("track", model=pl.col("label").str.extract(r"Model ID:\s*(\d+)"))
    rows = (
        rows.filter((pl.col("kind") == "step") & pl.col("iteration").is_not_null())
        .join(models, on="track")
        .with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"), fp_start_ns=_moment("fp"), bp_end_ns=_moment("bp"))
        .unique(["model", "iteration", "start_ns"], keep="first")
        .sort("end_ns", "start_ns")
    )
    small = (rows["iteration"] < 2**31).all()
    alone = rows["model"].n_unique() <= 1 and rows["iteration"].is_unique().all() and small
    return rows.select(
        step=(pl.col("iteration") if alone else pl.int_range(1, pl.len() + 1)).cast(pl.Int32),
        model="model",
        phase=pl.when(pl.col("bp_end_ns").is_not_null()).then(pl.lit("train")),
        start_ns="start_ns",
        end_ns="end_ns",
        fp_start_ns="fp_start_ns",
        bp_end_ns="bp_end_ns",
        how=pl.lit("marker"),
    )


def _moment(column: str) -> pl.Expr:
    """Microseconds as text, some with the noise of a float behind them; 0 is for none."""
    parts = pl.col(column).str.splitn(".", 2).struct
    whole, fraction = parts.field("field_0").cast(pl.Int64, strict=False), parts.field("field_1").fill_null("0")
    noise = fraction.str.slice(0, 9).str.pad_end(9, "0").cast(pl.Int64, strict=False)
    moment = whole * 1000 + (noise + 500_000) // 1_000_000
    return pl.when(moment > 0).then(moment)


def _stepped(spans: pl.DataFrame, steps: pl.DataFrame, on_device: bool) -> pl.DataFrame:
    """By its launch where steps are ranges of the host; where the device marked them, by its own start."""
    if not on_device:
        return _kineto.stepped(spans, steps)
    index = intervals.enclosing(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy(), spans["start_ns"].to_numpy())
    return spans.with_columns(step=steps["step"].gather(np.maximum(index, 0)).set(pl.Series(index < 0), None))


def _links(spans: pl.DataFrame, said: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Transfers between two ranks: the tasks of planes that move bytes."""
    planes = of_layers(lanes, "planes")
    rows = spans.select("track", "step", "start_ns", "dur_ns").with_columns(said["bytes", "src", "dst", "transport", "link"].get_columns())
    moved = rows.filter(pl.col("track").is_in(planes) & (pl.col("bytes") > 0) & (pl.col("dst") < 2**31) & (pl.col("src") < 2**31))
    operators = (
        spans.filter(pl.col("track").is_in(of_layers(lanes, "communication")))
        .select("name", "start_ns", group="track", end_ns=end())
        .sort("start_ns")
    )
    moved = moved.join(_groups_of_planes(lanes), on="track", how="left", maintain_order="left").with_row_index("at")
    found = [pl.DataFrame(schema={"at": pl.UInt32, "op": pl.String})]
    for (group,), own in moved.group_by("group"):
        mine = operators.filter(pl.col("group") == group) if group is not None else operators
        index = intervals.enclosing(mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy(), own["start_ns"].to_numpy())
        names = mine["name"].cast(pl.String).gather(np.maximum(index, 0)).set(pl.Series(index < 0), None) if mine.height else None
        found += [own.select("at").with_columns(names.alias("op"))] if names is not None else []
    moved = moved.join(pl.concat(found), on="at", how="left", maintain_order="left")
    known = pl.col("link").is_in(["INVALID_TYPE", "N/A", "RESERVED", ""]).not_()
    return moved.select("step", "op", "src", "dst", "bytes", "dur_ns", transport=pl.coalesce(pl.when(known).then("link"), "transport"))


def _groups_of_planes(lanes: pl.DataFrame) -> pl.DataFrame:
    """track, group: the planes of a group stand behind the lane of its operators."""
    rows = lanes.filter(pl.col("layer").is_in(["communication", "planes"]))
    rows = rows.sort("pid", "sort", pl.col("tid").cast(pl.Int64, strict=False), "track")
    group = pl.when(pl.col("layer") == "communication").then("track").forward_fill().over("pid", mapping_strategy="group_to_rows")
    return rows.select("track", "layer", group=group).filter(pl.col("layer") == "planes").select("track", "group")


def _left_out(spans: pl.DataFrame, lanes: pl.DataFrame) -> NDArray[np.bool_]:
    """Overlap tracks, which are sums of the others; and iterations that several files of one result tell."""
    layer = spans.select("track").join(lanes.select("track", "layer"), on="track", how="left", maintain_order="left")["layer"]
    layer = layer.fill_null("")  # a lane that nothing describes
    marked = (layer == "iterations") | (spans["category"].cast(pl.String) == "Reduce").fill_null(False)
    again = marked.to_numpy() & ~spans.select(pl.struct("name", "start_ns", "dur_ns").is_first_distinct()).to_series().to_numpy()
    return np.asarray((layer == "overlap").to_numpy() | again)


def _with_passing(spans: pl.DataFrame, scratch: Path, matches: Matches, said: pl.DataFrame) -> pl.LazyFrame:
    """The spans with the columns that were never in memory all at once, and what the table of kernels adds to them."""
    passing = ["flops", "bytes", "shapes", "dtypes", "args"]
    files = _kineto.files(scratch, "spans")
    columns = pl.concat([pl.scan_ipc(file).select(passing) for file in files])
    told = pl.DataFrame([matches.of(name, spans.height).alias(f"told_{name}") for name in ("shapes", "dtypes", "details")])
    told = told.with_columns(said_bytes=pl.when((said["bytes"] > 0).fill_null(False)).then(said["bytes"]))
    whole = pl.concat(
        [spans.select(pl.exclude("correlation")).lazy(), spans.select("correlation").lazy(), told.lazy(), columns], how="horizontal"
    )
    # torch_npu's text of shapes and types is in columns of its own, as everyone else writes it.
    args = pl.col("args").str.replace_all(r'"Input (?:Dims|type)":\s*"(?:[^"\\]|\\.)*"(?:,\s*)?', "").str.replace(r",\s*\}$", "}")
    details = pl.col("told_details")
    joined = pl.concat_str(args.str.strip_suffix("}"), pl.lit(", "), details.str.strip_prefix("{"))
    empty = args.is_null() | (args.str.len_bytes() <= 2)
    return whole.with_columns(
        shapes=pl.coalesce("told_shapes", listed(pl.col("shapes").cast(pl.String))),
        dtypes=pl.coalesce("told_dtypes", listed(pl.col("dtypes").cast(pl.String))),
        bytes=pl.coalesce("bytes", "said_bytes"),
        args=pl.when(details.is_null()).then(args).when(empty).then(details).otherwise(joined),
    ).drop("told_shapes", "told_dtypes", "told_details", "said_bytes")
