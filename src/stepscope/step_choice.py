"""Steps that the user chooses after the recording: a range, function, operator or kernel that repeats is taken as the step.

A choice is `annotation:NAME`, `function:NAME`, `operator:NAME`, `kernel:NAME`, or NAME alone: the first of these kinds that has it. NAME is
a whole name, or a pattern with * and ?.

An annotation or a function encloses a step: each occurrence, the outermost of its thread, is one. An operator or a kernel begins a step,
which lasts until the next one begins; the last ends with the last span of its window. A kernel begins a step where the host starts the
operator that launches it, so that the kernel belongs to the step that it begins. A call of a function that JAX compiled begins a step,
too: it returns before its work is done.
"""

import difflib
import re
import shlex
from typing import Any

import msgspec
import numpy as np
import polars as pl

from stepscope import intervals, schema
from stepscope.errors import UsageError
from stepscope.intervals import Ints
from stepscope.step_assignment import NO_MARKERS, REGIONS, number_steps, numbers_of, steps_by_handover, steps_by_launch, with_passes
from stepscope.trace import Trace
from stepscope.trace_windows import windows_of

# What may mark a step, in the order in which a name without a kind is looked up.
KINDS = ("annotation", "function", "operator", "kernel")
_ENCLOSING = ("annotation", "function")
_XLA = ("jax", "tensorflow")  # frameworks that hand work from thread to thread
_COMPILED = "PjitFunction("
_LOOKED_AT = 60  # names that are examined as markers, of each rank
_LEAST = 3  # occurrences: two intervals can be compared
_SHORTEST_SHARE = 0.01  # of the recording that a marker must cover


def with_steps(trace: Trace, choice: str) -> Trace:
    """The trace with the chosen steps: the table `steps`, and the step of every span and link."""
    kind, names = _resolve(trace, choice)
    found, remarks = _steps(_occurrences(trace, kind, names), kind, _recorded_until(trace))
    spans = _columns(trace)
    tracks = _placeless(trace)
    per_rank = [pl.DataFrame(schema={"rank": pl.Int32})]
    parts = [pl.DataFrame(schema={"row": pl.UInt32, "step": pl.Int32})]
    for (rank,), part in spans.with_row_index("row").group_by("rank", maintain_order=True):
        steps = found.filter(pl.col("rank") == rank).sort("start_ns")
        numbers, steps = _assigned(part, steps, trace.meta.framework in _XLA)
        lost = (
            part.select("rank", "track").join(tracks, on=["rank", "track"], how="left", maintain_order="left")["placeless"].fill_null(False)
        )
        parts.append(part.select("row").with_columns(step=numbers.set(lost, None)))
        per_rank.append(steps)
    step = pl.concat(parts).sort("row").select("step")
    for missing in sorted(set(trace.meta.ranks) - set(found["rank"].to_list())):
        remarks.append({"rank": missing, "what": f"nothing on this rank is named '{_spelled(kind, names)}', so it has no steps", "lost": 0})
    tables: dict[str, pl.LazyFrame | pl.DataFrame] = {
        **trace.tables,
        "steps": pl.concat(per_rank, how="diagonal_relaxed"),
        "spans": pl.concat([trace.spans.drop("step"), step.lazy()], how="horizontal"),
        "links": _links(trace, step["step"]),
        "problems": _problems(trace, found, remarks),
    }
    return Trace(tables, msgspec.structs.replace(trace.meta, extra=trace.meta.extra | {"step_name": choice}))


class Marker(msgspec.Struct, frozen=True):
    """Something that could mark the steps of a rank."""

    rank: int
    kind: str
    name: str
    count: int  # steps that it would make
    median_interval_ns: int  # from one start to the next
    regularity: float  # share of the intervals that are alike
    covered: float  # share of the recorded time that would be in steps

    @property
    def choice(self) -> str:
        return f"{self.kind}:{self.name}"


def markers(trace: Trace) -> list[Marker]:
    """What could mark a step, the best of each rank first: what repeats regularly and covers the recording."""
    key = ["rank", "kind", "name"]
    # Ranges that are numbered are told apart by nothing else: `request 17` and `request 18` are both `request *`.
    numbered = (pl.col("kind") == "annotation") & (pl.len().over(key) == 1)
    name = pl.when(numbered).then(pl.col("name").str.replace(r"\d+$", "*")).otherwise("name")
    spans = _classified(trace).with_columns(name=name)
    sums = spans.group_by(key).agg(count=pl.len(), total_ns=pl.col("dur_ns").sum()).filter(pl.col("count") >= _LEAST).collect()
    # The longest of each kind: a step is long, and what begins one need not be, but then it is rare.
    rare = sums.sort("count", "total_ns", descending=[False, True]).group_by("rank", "kind", maintain_order=True).head(_LOOKED_AT)
    long = sums.sort("total_ns", descending=True).group_by("rank", "kind", maintain_order=True).head(_LOOKED_AT)
    wanted = pl.concat([rare, long.select(rare.columns)]).unique(key).select(key)
    until = _recorded_until(trace)
    lengths = until.group_by("rank").agg(recorded=(pl.col("to_ns") - pl.col("from_ns")).sum())
    whole: dict[int, int] = dict(lengths.iter_rows())
    rows = _with_borders(trace, spans.join(wanted.lazy(), on=key, how="semi")).collect()
    found = []
    for (rank, kind, name), part in rows.group_by(key):
        steps, _ = _steps(part, kind, until)
        if steps.height < _LEAST or not whole.get(rank):
            continue
        every = steps.sort("start_ns")["start_ns"].diff().drop_nulls().to_numpy()
        covered = intervals.merge(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()).total / whole[rank]
        found.append(Marker(rank, kind, name, steps.height, round(float(np.median(every))), _regularity(every), min(covered, 1.0)))
    first = {
        (row["rank"], row["kind"], row["name"]): row["start_ns"] for row in rows.group_by(key).agg(pl.col("start_ns").min()).to_dicts()
    }
    good = [one for one in found if one.covered >= _SHORTEST_SHARE]
    return sorted(good, key=lambda one: (one.rank, -_score(one), first[one.rank, one.kind, one.name], one.name))


def _regularity(every: Ints) -> float:
    """The share of intervals that are within half of the median; in count or in time, whichever is less.

    In time, because what occurs often within each step has many short intervals that are alike. The longest does not count: it may be the
    first step, or a checkpoint.
    """
    middle = np.median(every)
    alike = np.abs(every - middle) <= middle / 2
    longest = int(np.argmax(every))
    rest = np.delete(every, longest)
    time = float(rest[np.delete(alike, longest)].sum() / rest.sum()) if rest.sum() else 0.0
    return min(float(alike.mean()), time)


def _score(one: Marker) -> float:
    """How likely it is a step: more so a range that users named or a function than an operator, which is one of many alike."""
    weight = {"annotation": 1.0, "function": 0.9, "operator": 0.4, "kernel": 0.3}[one.kind]
    return weight * one.regularity * one.covered


def with_advice(trace: Trace) -> Trace:
    """The trace whose row "no step markers" names a marker, where the whole recording is one step and something repeats in it."""
    said = pl.col("what").str.starts_with(NO_MARKERS)
    whole = trace.steps.select(pl.col("rank"), pl.col("how").cast(pl.String)).filter(pl.col("how") == "whole").collect()["rank"].to_list()
    problems = trace.problems.collect()
    if not whole or problems.filter(said).is_empty():
        return trace
    best: dict[int, Marker] = {}
    for one in markers(trace):
        best.setdefault(one.rank, one)
    advice = {
        rank: f"; steps could be cut at `{one.name}` ({one.count:,} times): --step-name {shlex.quote(one.choice)}"
        for rank, one in best.items()
        if rank in whole
    }
    if not advice:
        return trace
    added = pl.col("rank").replace_strict(advice, default="", return_dtype=pl.String)
    return Trace(
        trace.tables | {"problems": problems.with_columns(what=pl.when(said).then(pl.col("what") + added).otherwise("what"))}, trace.meta
    )


# What a choice means


def _resolve(trace: Trace, choice: str) -> tuple[str, list[str]]:
    """The kind of a choice, and the names that it stands for: a whole name first, then as a pattern."""
    prefix, colon, rest = choice.partition(":")
    kinds, wanted = ((prefix,), rest) if colon and prefix in KINDS and not rest.startswith(":") else (KINDS, choice)
    names = _classified(trace).select("kind", "name").unique().collect()
    by_kind = {kind: sorted(names.filter(pl.col("kind") == kind)["name"].drop_nulls().to_list()) for kind in KINDS}
    pattern = re.compile(re.escape(wanted).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
    for kind in kinds:
        if wanted in by_kind[kind]:
            return kind, [wanted]
    for kind in kinds:
        if found := [name for name in by_kind[kind] if pattern.fullmatch(name)]:
            return kind, found
    raise UsageError(_no_match(trace, kinds, wanted, by_kind))


def _no_match(trace: Trace, kinds: tuple[str, ...], wanted: str, by_kind: dict[str, list[str]]) -> str:
    what = "nothing in the trace" if len(kinds) > 1 else f"no {kinds[0]} in the trace"
    near = [
        f"{kind}:{name}" for kind in KINDS for name in difflib.get_close_matches(wanted, by_kind[kind], 3, 0.5 if kind in kinds else 0.9)
    ]
    near += [one.choice for one in markers(trace)[:5] if one.choice not in near and len(near) < 5] if len(near) < 5 else []
    near = near or [f"{kind}:{name}" for kind in KINDS for name in by_kind[kind]]
    return f"{what} is named '{wanted}'" + (f"; nearest: {', '.join(repr(one) for one in near[:5])}" if near else "")


def _classified(trace: Trace) -> pl.LazyFrame:
    """The spans that can mark a step, with `kind` as a choice calls it."""
    tracks = trace.tracks.select("rank", "track", place=pl.col("kind").cast(pl.String), device="device").unique(
        ["rank", "track"], keep="first"
    )
    spans = trace.spans.select("rank", "track", "kind", "name", "start_ns", "dur_ns", "flow_in", "op", "category")
    spans = spans.join(tracks, on=["rank", "track"], how="left", maintain_order="left")
    kind, on_device = pl.col("kind"), (pl.col("place") == "stream") | pl.col("device").is_not_null()
    on_device = on_device.fill_null(False)
    word = (
        pl.when(kind.is_in(["kernel", "copy", "set"]) | ((kind == "communication") & on_device))
        .then(pl.lit("kernel"))
        .when(on_device)
        .then(None)
        .when(kind.is_in(["annotation", "step", "scope"]))
        .then(pl.lit("annotation"))
        .when(kind.is_in(["python", "other"]))
        .then(pl.lit("function"))
        .when(kind.is_in(["op", "api", "sync", "data", "communication"]))
        .then(pl.lit("operator"))
    )
    placed = (pl.col("place") != "other").fill_null(True)
    # Kineto draws a user's range a second time, on the device.
    copied = pl.col("category").cast(pl.String).str.starts_with("gpu_user_annotation").fill_null(False)
    return spans.with_columns(kind=word, name=pl.col("name").cast(pl.String)).filter(placed & ~copied & pl.col("kind").is_not_null())


def _occurrences(trace: Trace, kind: str, names: list[str]) -> pl.DataFrame:
    wanted = _classified(trace).filter((pl.col("kind") == kind) & pl.col("name").is_in(names))
    return _with_borders(trace, wanted).collect()


def _with_borders(trace: Trace, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Occurrences with `border_ns`, where the host begins them: of a kernel, the start of the operator or the call that launched it."""
    starts = trace.spans.select("rank", "span", "start_ns")
    for column in ("op", "flow_in"):
        known = starts.select("rank", pl.col("span").alias(column), pl.col("start_ns").alias(f"{column}_ns"))
        rows = rows.join(known, on=["rank", column], how="left", maintain_order="left")
    border = pl.when(pl.col("kind") == "kernel").then(pl.coalesce("op_ns", "flow_in_ns", "start_ns")).otherwise("start_ns")
    return rows.select(
        "rank", "track", "device", "kind", "name", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), border_ns=border
    )


def _steps(rows: pl.DataFrame, kind: str, until: pl.DataFrame) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """The steps that occurrences make, and remarks on occurrences that make none."""
    made, remarks = [], []
    for (rank,), of_rank in rows.group_by("rank", maintain_order=True):
        part, remark = _of_one_loop(of_rank, kind)
        if remark:
            remarks.append({"rank": rank, "what": remark, "lost": 0})
        if kind in _ENCLOSING and not part["name"].str.starts_with(_COMPILED).all():
            named = part if kind == "annotation" else part.with_columns(name=pl.lit(""))  # a function's digits are not a step's number
            steps = number_steps(named, "given")
        else:
            steps = _from_borders(part["border_ns"].unique().sort(), until.filter(pl.col("rank") == rank))
        made.append(steps.with_columns(rank=pl.lit(rank, pl.Int32)))
    if not made:
        return pl.DataFrame(schema={name: schema.TABLES["steps"][name] for name in ("rank", "step", "start_ns", "end_ns", "how")}), remarks
    return pl.concat(made), remarks


def _of_one_loop(rows: pl.DataFrame, kind: str) -> tuple[pl.DataFrame, str | None]:
    """The outermost occurrences; where they run on several threads or devices at once, those of the one that has most."""
    if kind == "kernel":
        place, what = "device", "devices"
        several = rows["device"].n_unique() > 1
    else:
        place, what = "track", "threads"
        ordered = rows.sort("track", "start_ns", "end_ns", descending=[False, False, True])
        rows = ordered.filter((pl.col("start_ns") >= pl.col("end_ns").cum_max().shift(1).over("track")).fill_null(True)).sort("start_ns")
        reached = rows["end_ns"].cum_max().shift(1)
        several = rows["track"].n_unique() > 1 and bool((rows["start_ns"] < reached).any())
    if not several:
        return rows, None
    counts = rows.group_by(place).agg(count=pl.len(), first=pl.col("start_ns").min()).sort("count", "first", descending=[True, False])
    chosen = rows.filter(pl.col(place).eq_missing(counts[place][0]))
    left = rows.height - chosen.height
    return chosen, f"`{rows['name'][0]}` runs on {counts.height} {what} at once: steps are those of one of them, {left:,} others are none"


def _from_borders(borders: pl.Series, until: pl.DataFrame) -> pl.DataFrame:
    """Steps from each border to the next, in the same window; the last of a window ends with its last span."""
    steps = borders.to_frame("start_ns").with_columns(end_ns=pl.col("start_ns").shift(-1))
    steps = steps.join_asof(
        until.select("from_ns", "to_ns").sort("from_ns"), left_on="start_ns", right_on="from_ns", check_sortedness=False
    )
    end = pl.min_horizontal("end_ns", pl.max_horizontal("to_ns", "start_ns"))
    return steps.select(
        step=pl.int_range(pl.len(), dtype=pl.Int32), start_ns="start_ns", end_ns=end, how=pl.lit("given"), phase=pl.lit(None, pl.String)
    )


def _recorded_until(trace: Trace) -> pl.DataFrame:
    """Per rank and window, from the start to the end of its last span."""
    placed = trace.spans.select("rank", "track", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")).join(
        _placeless(trace).lazy().filter("placeless"), on=["rank", "track"], how="anti"
    )
    whole = placed.group_by("rank").agg(from_ns=pl.col("start_ns").min(), to_ns=pl.col("end_ns").max()).collect()
    windows = windows_of(trace.meta)
    if windows.is_empty():
        return whole.sort("rank", "from_ns")
    inside = (
        placed.sort("start_ns")
        .join_asof(windows.lazy().sort("from_ns"), left_on="start_ns", right_on="from_ns", by="rank", check_sortedness=False)
        .group_by("rank", "from_ns")
        .agg(to_ns=pl.col("end_ns").max())
        .drop_nulls()
        .collect()
    )
    others = whole.join(windows, on="rank", how="anti")
    return pl.concat([inside.select("rank", "from_ns", "to_ns"), others]).sort("rank", "from_ns")


def _placeless(trace: Trace) -> pl.DataFrame:
    """Tracks, and whether their spans have no place in time."""
    return trace.tracks.select("rank", "track", placeless=pl.col("kind") == "other").unique(["rank", "track"]).collect()


# What depends on the steps


def _columns(trace: Trace) -> pl.DataFrame:
    names = ["rank", "span", "track", "kind", "start_ns", "dur_ns", "parent", "flow_in"]
    names += ["name", "category"] if trace.meta.framework in _XLA else []
    return trace.spans.select(names).collect()


def _assigned(spans: pl.DataFrame, steps: pl.DataFrame, handover: bool) -> tuple[pl.Series, pl.DataFrame]:
    """The step of each span of one rank, and its steps."""
    ids = spans["span"].fill_null(-1).to_numpy()
    rows = spans.with_columns(
        pl.Series("span", np.arange(spans.height)),
        *(pl.Series(name, _places(ids, spans[name].fill_null(-1).to_numpy())) for name in ("parent", "flow_in")),
    )
    if not handover:
        return steps_by_launch(rows, steps), steps
    rows = rows.with_columns(region=pl.col("name").cast(pl.String).is_in(REGIONS))
    numbers = numbers_of(steps, steps_by_handover(rows, steps))
    return numbers, with_passes(steps, rows.with_columns(numbers.alias("step")))


def _places(ids: Ints, wanted: Ints) -> Ints:
    """Where each of the wanted ids stands; -1 for none."""
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
    found = order[at]
    return np.where((wanted >= 0) & (ids[found] == wanted), found, -1)


def _links(trace: Trace, step: pl.Series) -> pl.LazyFrame:
    """Links in the step of the operator that they are of; in none where it ran in several of the new steps."""
    if trace.table("links").select(pl.len()).collect().item() == 0:
        return trace.table("links")
    key = ["rank", "step", "op"]
    spans = trace.spans.select("rank", "step", "kind", op=pl.col("name").cast(pl.String)).collect().with_columns(new=step)
    known = (
        spans.filter((pl.col("kind") == "communication") & pl.col("new").is_not_null())
        .group_by(key)
        .agg(new=pl.when(pl.col("new").n_unique() == 1).then(pl.col("new").first()))
    )
    links = trace.table("links").with_columns(pl.col("op").cast(pl.String))
    return links.join(known.lazy(), on=key, how="left", maintain_order="left", nulls_equal=True).with_columns(step="new").drop("new")


def _problems(trace: Trace, found: pl.DataFrame, remarks: list[dict[str, Any]]) -> pl.LazyFrame:
    """The problems without what was said of steps before."""
    solved = pl.col("what").str.starts_with(NO_MARKERS) & pl.col("rank").is_in(found["rank"].unique().to_list())
    problems = trace.problems.filter(~solved.fill_null(False))
    return pl.concat([problems, schema.conform(pl.LazyFrame(remarks), "problems")]) if remarks else problems


def _spelled(kind: str, names: list[str]) -> str:
    return f"{kind}:{names[0]}" if len(names) == 1 else f"{kind}:{names[0]}, ... ({len(names)} names)"
