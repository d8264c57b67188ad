"""Steps that the user chooses after the recording: at an annotation, function, operator or kernel that repeats.

A choice is `annotation:NAME`, `function:NAME`, `operator:NAME`, `kernel:NAME`, or NAME alone: the first of these kinds with that name.
NAME is a full name, or a pattern with * and ?.

An annotation or a function encloses a step: each outermost occurrence on its thread is a step. An operator or a kernel starts a step,
which lasts until the next one starts; the last ends with the last span of its window. A kernel starts a step where the host starts the
operator that launches it, so that the kernel belongs to the step that it starts. A call of a function that JAX compiled also starts a
step: it returns before its work is done.
"""

import difflib
import re
import shlex
from typing import Any

import msgspec
import numpy as np
import polars as pl

from stepscope.errors import UsageError
from stepscope.model import intervals, schema
from stepscope.model.intervals import Ints
from stepscope.model.steps.step_assignment import (
    NO_MARKERS,
    REGIONS,
    number_steps,
    numbers_of,
    steps_by_handover,
    steps_by_launch,
    with_passes,
)
from stepscope.model.steps.windows import windows_of
from stepscope.model.trace import Trace

# Kinds of markers, in the order in which a name without a kind is looked up.
KINDS = ("annotation", "function", "operator", "kernel")
_ENCLOSING = ("annotation", "function")
_XLA = ("jax", "tensorflow")  # frameworks that hand work from thread to thread
_COMPILED = "PjitFunction("
_CANDIDATES = 60  # names per rank and kind that are examined as markers
_FEWEST = 3  # occurrences: two intervals can be compared
_SMALLEST_COVERAGE = 0.01  # of the recording that a marker must cover


def with_steps(trace: Trace, choice: str) -> Trace:
    """The trace with the chosen steps: the table `steps`, and the step of every span and link."""
    kind, names = _resolve(trace, choice)
    all_steps, remarks = _steps(_occurrences(trace, kind, names), kind, _recorded_until(trace))
    spans = _columns(trace)
    tracks = _untimed_tracks(trace)
    per_rank = [pl.DataFrame(schema={"rank": pl.Int32})]
    parts = [pl.DataFrame(schema={"row": pl.UInt32, "step": pl.Int32})]
    for (rank,), part in spans.with_row_index("row").group_by("rank", maintain_order=True):
        steps = all_steps.filter(pl.col("rank") == rank).sort("start_ns")
        numbers, steps = _assign(part, steps, trace.meta.framework in _XLA)
        lost = (
            part.select("rank", "track").join(tracks, on=["rank", "track"], how="left", maintain_order="left")["untimed"].fill_null(False)
        )
        parts.append(part.select("row").with_columns(step=numbers.set(lost, None)))
        per_rank.append(steps)
    step = pl.concat(parts).sort("row").select("step")
    for missing in sorted(set(trace.meta.ranks) - set(all_steps["rank"].to_list())):
        remarks.append(
            {"rank": missing, "what": f"nothing on this rank is named '{_choice_text(kind, names)}', so it has no steps", "lost": 0}
        )
    tables: dict[str, pl.LazyFrame | pl.DataFrame] = {
        **trace.tables,
        "steps": pl.concat(per_rank, how="diagonal_relaxed"),
        "spans": pl.concat([trace.spans.drop("step"), step.lazy()], how="horizontal"),
        "links": _links(trace, step["step"]),
        "problems": _problems(trace, all_steps, remarks),
    }
    return Trace(tables, msgspec.structs.replace(trace.meta, extra=trace.meta.extra | {"step_name": choice}))


class Marker(msgspec.Struct, frozen=True):
    """A name that could mark the steps of a rank."""

    rank: int
    kind: str
    name: str
    count: int  # steps that it would make
    median_interval_ns: int  # from one start to the next
    regularity: float  # share of similar intervals
    covered: float  # share of the recorded time inside steps

    @property
    def choice(self) -> str:
        return f"{self.kind}:{self.name}"


def markers(trace: Trace) -> list[Marker]:
    """Names that could mark a step, the best of each rank first: they repeat regularly and cover the recording."""
    key = ["rank", "kind", "name"]
    # Numbered annotations count as one: `request 17` and `request 18` are both `request *`.
    numbered = (pl.col("kind") == "annotation") & (pl.len().over(key) == 1)
    name = pl.when(numbered).then(pl.col("name").str.replace(r"\d+$", "*")).otherwise("name")
    spans = _classified(trace).with_columns(name=name)
    sums = spans.group_by(key).agg(count=pl.len(), total_ns=pl.col("dur_ns").sum()).filter(pl.col("count") >= _FEWEST).collect()
    # The longest and the rarest of each kind: a step is long; an operator that starts a step may be short, but is rare.
    rare = sums.sort("count", "total_ns", descending=[False, True]).group_by("rank", "kind", maintain_order=True).head(_CANDIDATES)
    long = sums.sort("total_ns", descending=True).group_by("rank", "kind", maintain_order=True).head(_CANDIDATES)
    wanted = pl.concat([rare, long.select(rare.columns)]).unique(key).select(key)
    until = _recorded_until(trace)
    lengths = until.group_by("rank").agg(recorded=(pl.col("to_ns") - pl.col("from_ns")).sum())
    whole: dict[int, int] = dict(lengths.iter_rows())
    rows = _with_borders(trace, spans.join(wanted.lazy(), on=key, how="semi")).collect()
    candidates = []
    for (rank, kind, name), part in rows.group_by(key):
        steps, _ = _steps(part, kind, until)
        if steps.height < _FEWEST or not whole.get(rank):
            continue
        gaps = steps.sort("start_ns")["start_ns"].diff().drop_nulls().to_numpy()
        covered = intervals.merge(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()).total / whole[rank]
        candidates.append(Marker(rank, kind, name, steps.height, round(float(np.median(gaps))), _regularity(gaps), min(covered, 1.0)))
    first = {
        (row["rank"], row["kind"], row["name"]): row["start_ns"] for row in rows.group_by(key).agg(pl.col("start_ns").min()).to_dicts()
    }
    good = [marker for marker in candidates if marker.covered >= _SMALLEST_COVERAGE]
    return sorted(good, key=lambda marker: (marker.rank, -_score(marker), first[marker.rank, marker.kind, marker.name], marker.name))


def _regularity(lengths: Ints) -> float:
    """The share of intervals within half of the median, by count or by time, whichever is smaller.

    By time, because an operator that occurs many times per step has many similar short intervals. The longest interval does not count: it
    may be the first step, or a checkpoint.
    """
    median = np.median(lengths)
    similar = np.abs(lengths - median) <= median / 2
    longest = int(np.argmax(lengths))
    rest = np.delete(lengths, longest)
    time = float(rest[np.delete(similar, longest)].sum() / rest.sum()) if rest.sum() else 0.0
    return min(float(similar.mean()), time)


def _score(marker: Marker) -> float:
    """How likely a marker is a step: annotations and functions more than operators, which are often similar."""
    weight = {"annotation": 1.0, "function": 0.9, "operator": 0.4, "kernel": 0.3}[marker.kind]
    return weight * marker.regularity * marker.covered


def with_advice(trace: Trace) -> Trace:
    """The trace with a suggested marker in its row "no step markers", where the whole recording is one step and something repeats."""
    unmarked = pl.col("what").str.starts_with(NO_MARKERS)
    whole = trace.steps.select(pl.col("rank"), pl.col("how").cast(pl.String)).filter(pl.col("how") == "whole").collect()["rank"].to_list()
    problems = trace.problems.collect()
    if not whole or problems.filter(unmarked).is_empty():
        return trace
    best: dict[int, Marker] = {}
    for marker in markers(trace):
        best.setdefault(marker.rank, marker)
    advice = {
        rank: f"; steps could be cut at `{marker.name}` ({marker.count:,} times): --step-name {shlex.quote(marker.choice)}"
        for rank, marker in best.items()
        if rank in whole
    }
    if not advice:
        return trace
    added = pl.col("rank").replace_strict(advice, default="", return_dtype=pl.String)
    return Trace(
        trace.tables | {"problems": problems.with_columns(what=pl.when(unmarked).then(pl.col("what") + added).otherwise("what"))},
        trace.meta,
    )


# Choices and occurrences


def _resolve(trace: Trace, choice: str) -> tuple[str, list[str]]:
    """The kind of a choice and the names that it matches: as a full name first, then as a pattern."""
    prefix, colon, rest = choice.partition(":")
    kinds, wanted = ((prefix,), rest) if colon and prefix in KINDS and not rest.startswith(":") else (KINDS, choice)
    names = _classified(trace).select("kind", "name").unique().collect()
    by_kind = {kind: sorted(names.filter(pl.col("kind") == kind)["name"].drop_nulls().to_list()) for kind in KINDS}
    pattern = re.compile(re.escape(wanted).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
    for kind in kinds:
        if wanted in by_kind[kind]:
            return kind, [wanted]
    for kind in kinds:
        if matches := [name for name in by_kind[kind] if pattern.fullmatch(name)]:
            return kind, matches
    raise UsageError(_no_match(trace, kinds, wanted, by_kind))


def _no_match(trace: Trace, kinds: tuple[str, ...], wanted: str, by_kind: dict[str, list[str]]) -> str:
    missing = "nothing in the trace" if len(kinds) > 1 else f"no {kinds[0]} in the trace"
    near = [
        f"{kind}:{name}" for kind in KINDS for name in difflib.get_close_matches(wanted, by_kind[kind], 3, 0.5 if kind in kinds else 0.9)
    ]
    near += [marker.choice for marker in markers(trace)[:5] if marker.choice not in near and len(near) < 5] if len(near) < 5 else []
    near = near or [f"{kind}:{name}" for kind in KINDS for name in by_kind[kind]]
    return f"{missing} is named '{wanted}'" + (f"; nearest: {', '.join(map(repr, near[:5]))}" if near else "")


def _classified(trace: Trace) -> pl.LazyFrame:
    """The spans that can mark a step, with the `kind` of a choice."""
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
    timed = (pl.col("place") != "other").fill_null(True)
    # Kineto repeats a user's annotation on the device.
    copied = pl.col("category").cast(pl.String).str.starts_with("gpu_user_annotation").fill_null(False)
    return spans.with_columns(kind=word, name=pl.col("name").cast(pl.String)).filter(timed & ~copied & pl.col("kind").is_not_null())


def _occurrences(trace: Trace, kind: str, names: list[str]) -> pl.DataFrame:
    wanted = _classified(trace).filter((pl.col("kind") == kind) & pl.col("name").is_in(names))
    return _with_borders(trace, wanted).collect()


def _with_borders(trace: Trace, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Occurrences with `border_ns`, their start on the host: for a kernel, the start of the operator or call that launched it."""
    starts = trace.spans.select("rank", "span", "start_ns")
    for column in ("op", "flow_in"):
        known = starts.select("rank", pl.col("span").alias(column), pl.col("start_ns").alias(f"{column}_ns"))
        rows = rows.join(known, on=["rank", column], how="left", maintain_order="left")
    border = pl.when(pl.col("kind") == "kernel").then(pl.coalesce("op_ns", "flow_in_ns", "start_ns")).otherwise("start_ns")
    return rows.select(
        "rank", "track", "device", "kind", "name", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), border_ns=border
    )


def _steps(rows: pl.DataFrame, kind: str, until: pl.DataFrame) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """The steps at these occurrences, and remarks on occurrences without a step."""
    parts, remarks = [], []
    for (rank,), rank_rows in rows.group_by("rank", maintain_order=True):
        part, remark = _of_one_loop(rank_rows, kind)
        if remark:
            remarks.append({"rank": rank, "what": remark, "lost": 0})
        if kind in _ENCLOSING and not part["name"].str.starts_with(_COMPILED).all():
            named = (
                part if kind == "annotation" else part.with_columns(name=pl.lit(""))
            )  # digits in the name of a function are no step number
            steps = number_steps(named, "given")
        else:
            steps = _from_borders(part["border_ns"].unique().sort(), until.filter(pl.col("rank") == rank))
        parts.append(steps.with_columns(rank=pl.lit(rank, pl.Int32)))
    if not parts:
        return pl.DataFrame(schema={name: schema.TABLES["steps"][name] for name in ("rank", "step", "start_ns", "end_ns", "how")}), remarks
    return pl.concat(parts), remarks


def _of_one_loop(rows: pl.DataFrame, kind: str) -> tuple[pl.DataFrame, str | None]:
    """The outermost occurrences; where several threads or devices run them at once, those of the one with the most."""
    if kind == "kernel":
        place, places = "device", "devices"
        several = rows["device"].n_unique() > 1
    else:
        place, places = "track", "threads"
        ordered = rows.sort("track", "start_ns", "end_ns", descending=[False, False, True])
        rows = ordered.filter((pl.col("start_ns") >= pl.col("end_ns").cum_max().shift(1).over("track")).fill_null(True)).sort("start_ns")
        reached = rows["end_ns"].cum_max().shift(1)
        several = rows["track"].n_unique() > 1 and bool((rows["start_ns"] < reached).any())
    if not several:
        return rows, None
    counts = (
        rows.group_by(place)
        .agg(count=pl.len(), first=pl.col("start_ns").min())
        .sort("count", "first", place, descending=[True, False, False])
    )
    chosen = rows.filter(pl.col(place).eq_missing(counts[place][0]))
    left = rows.height - chosen.height
    return (
        chosen,
        f"`{rows['name'][0]}` runs on {counts.height} {places} at once: steps are taken from one of them, {left:,} others are ignored",
    )


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
    spans = trace.spans.select("rank", "track", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")).join(
        _untimed_tracks(trace).lazy().filter("untimed"), on=["rank", "track"], how="anti"
    )
    whole = spans.group_by("rank").agg(from_ns=pl.col("start_ns").min(), to_ns=pl.col("end_ns").max()).collect()
    windows = windows_of(trace.meta)
    if windows.is_empty():
        return whole.sort("rank", "from_ns")
    inside = (
        spans.sort("start_ns")
        .join_asof(windows.lazy().sort("from_ns"), left_on="start_ns", right_on="from_ns", by="rank", check_sortedness=False)
        .group_by("rank", "from_ns")
        .agg(to_ns=pl.col("end_ns").max())
        .drop_nulls()
        .collect()
    )
    others = whole.join(windows, on="rank", how="anti")
    return pl.concat([inside.select("rank", "from_ns", "to_ns"), others]).sort("rank", "from_ns")


def _untimed_tracks(trace: Trace) -> pl.DataFrame:
    """Tracks, and whether their spans have no timestamps."""
    return trace.tracks.select("rank", "track", untimed=pl.col("kind") == "other").unique(["rank", "track"]).collect()


# Spans, links and problems


def _columns(trace: Trace) -> pl.DataFrame:
    names = ["rank", "span", "track", "kind", "start_ns", "dur_ns", "parent", "flow_in"]
    names += ["name", "category"] if trace.meta.framework in _XLA else []
    return trace.spans.select(names).collect()


def _assign(spans: pl.DataFrame, steps: pl.DataFrame, handover: bool) -> tuple[pl.Series, pl.DataFrame]:
    """The step of each span of one rank, and its steps."""
    ids = spans["span"].fill_null(-1).to_numpy()
    rows = spans.with_columns(
        pl.Series("span", np.arange(spans.height)),
        *(pl.Series(name, _rows_of_ids(ids, spans[name].fill_null(-1).to_numpy())) for name in ("parent", "flow_in")),
    )
    if not handover:
        return steps_by_launch(rows, steps), steps
    rows = rows.with_columns(region=pl.col("name").cast(pl.String).is_in(REGIONS))
    numbers = numbers_of(steps, steps_by_handover(rows, steps))
    return numbers, with_passes(steps, rows.with_columns(numbers.alias("step")))


def _rows_of_ids(ids: Ints, wanted: Ints) -> Ints:
    """The row of each wanted id; -1 for none."""
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
    rows = order[at]
    return np.where((wanted >= 0) & (ids[rows] == wanted), rows, -1)


def _links(trace: Trace, step: pl.Series) -> pl.LazyFrame:
    """Links with the step of their operator; without a step where it ran in several of the new steps."""
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


def _problems(trace: Trace, steps: pl.DataFrame, remarks: list[dict[str, Any]]) -> pl.LazyFrame:
    """The problems, without those on steps that are solved now."""
    solved = pl.col("what").str.starts_with(NO_MARKERS) & pl.col("rank").is_in(steps["rank"].unique().to_list())
    problems = trace.problems.filter(~solved.fill_null(False))
    return pl.concat([problems, schema.conform(pl.LazyFrame(remarks), "problems")]) if remarks else problems


def _choice_text(kind: str, names: list[str]) -> str:
    return f"{kind}:{names[0]}" if len(names) == 1 else f"{kind}:{names[0]}, ... ({len(names)} names)"
