"""`cluster_analysis_output` of Ascend's msprof-analyze: sums over all ranks of a job, without a timeline.

    cluster_step_trace_time.csv             per step and rank: Computing, Communication, Overlapped, Free ... in us
    cluster_communication_matrix.json       group -> step -> operator -> "src-dst" -> transport, size, time
    cluster_communication.json              group -> step -> operator -> rank -> start and duration
    communication_group.json                the ranks of each group
    cluster_analysis.db                     the first of these as a table

A step of a rank is drawn from its sums: preparing (idle), computing, then communication that overlaps its end, then idle time. The first
step starts with the first communication operator, if its start is known.
"""

import json
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import DataError
from stepscope.model.trace import Meta, Trace, complete
from stepscope.readers import Options
from stepscope.readers.ascend.ascend_db.sqlite import read_rows
from stepscope.readers.ascend.common.communication_tables import link_table, pair_link
from stepscope.readers.ascend.common.tables import (
    NO_PREPARING,
    column,
    drop_invalid,
    nanoseconds,
    nested_items,
    read_json,
    read_table,
    report_lost,
)
from stepscope.readers.common.documents import as_dict, as_list, digits_in, member_text, to_index, to_int
from stepscope.readers.common.problems import Problem, problem_frame

_STEPS, _DATABASE = "cluster_step_trace_time.csv", "cluster_analysis.db"
_MATRIX, _CALLS, _GROUPS = "cluster_communication_matrix.json", "cluster_communication.json", "communication_group.json"
_PARTS = {"transit_ns": "Transit Time(ms)", "wait_ns": "Wait Time(ms)", "idle_ns": "Idle Time(ms)"}
_MAX_NS, _ROUNDING_NS = 2**55, 1000  # a year; each cell is rounded to microseconds
_ALL = 0.99  # of a step's communication; concurrent operators add up to more than it
_SUMS = {"rank": pl.Int32, "step": pl.Int32, **dict.fromkeys(("computing", "communication", "overlapped", "free", "preparing"), pl.Int64)}
_TABLE = {name: name.capitalize() for name in ("step", "type", "index", "computing", "communication", "overlapped", "free", "preparing")}
_PLACE = ["rank", "group", "label", "track_kind", "device"]
FORMAT = "cluster_analysis_output"


def sniff(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in (_STEPS, _DATABASE, _MATRIX, _CALLS))


def read(path: Path, options: Options) -> Trace:
    problems: list[Problem] = []
    calls = _calls(path, problems)
    sums = _sums(path, problems, calls["start_ns"].min() or 0)  # type: ignore[arg-type]
    links = _links(path, problems)
    ranks = sorted({*sums["rank"], *calls["rank"], *links["rank"]})
    if not ranks:
        raise DataError(path, "no rank in it")
    problems.append(Problem("", "only the sums of each step are recorded: they are drawn one after the other, not as they ran", 0))
    drawn = calls.drop(_PARTS)
    if sums.is_empty():  # then the calls are all that is known of the communication
        drawn = drawn.with_columns(kind=pl.lit("communication"), track_kind=pl.lit("stream"), device=pl.col("rank"))
    spans = pl.concat([_draw(sums, _wait_args(sums, calls)), drawn], how="diagonal_relaxed")
    places = spans.select(_PLACE).unique(maintain_order=True).with_columns(track=pl.int_range(pl.len(), dtype=pl.Int32).over("rank"))
    spans = spans.join(places, on=_PLACE, how="left", nulls_equal=True, maintain_order="left")
    # Tracks are numbered within a rank, so spans are nested rank by rank.
    nested = [complete(part) for (_,), part in spans.group_by("rank", maintain_order=True)]
    groups = read_json(path / _GROUPS, problems) if (path / _GROUPS).is_file() else None
    tables = {
        "spans": pl.concat(nested) if nested else pl.DataFrame(),
        "tracks": places.select("rank", "track", "group", "label", "device", kind="track_kind", sort="track", pid="group", tid="label"),
        "steps": sums.select("rank", "step", "start_ns", "end_ns", how=pl.lit("marker")),
        "links": links,
        "devices": pl.DataFrame({"rank": ranks, "device": ranks, "kind": ["aicore"] * len(ranks)}),
        "process_groups": _process_groups(groups),
        "problems": problem_frame(problems, path).with_columns(rank=pl.lit(ranks[0], pl.Int32)),
    }
    world = len({*ranks, *_ranks_of_groups(groups)})
    meta = Meta(format="cluster_output", ranks=ranks, world_size=world, extra={"groups": groups} if groups else {})
    return Trace({name: rows for name, rows in tables.items() if rows.width}, meta)


def _process_groups(groups: Any) -> pl.DataFrame:
    """The groups of several ranks: groups of kind p2p are pipelines."""
    lists = [(kind, member_text(members)) for kind, entries in as_dict(groups).items() for members in as_list(entries)]
    rows = [
        (int(rank), f"{kind} {','.join(ranks)}", kind, ",".join(ranks))
        for kind, text in lists
        if len(ranks := sorted((text or "").split(","), key=lambda word: int(word or 0))) > 1
        for rank in ranks
    ]
    columns = {"rank": pl.Int32, "group": pl.String, "description": pl.String, "members": pl.String}
    return pl.DataFrame(rows, columns, orient="row")


def _ranks_of_groups(groups: Any) -> set[int]:
    """All ranks of `{"collective": [[0, 1], [0]], "p2p": [[0, 1]]}`."""
    lists = [members for kind in as_dict(groups).values() for members in as_list(kind)]
    return {rank for members in lists for rank in as_list(members) if isinstance(rank, int) and 0 <= rank < 2**31}


def _sums(path: Path, problems: list[Problem], begin_ns: int) -> pl.DataFrame:
    """Per rank and step, in ns. The steps of a rank follow each other from `begin_ns` on."""
    rows = read_table(path / _STEPS, problems) if (path / _STEPS).is_file() else _database_sums(path, problems)
    if "Index" not in rows.columns:
        return pl.DataFrame(schema=_SUMS | {"start_ns": pl.Int64, "end_ns": pl.Int64})
    rows = rows.filter(column(rows, "Type").fill_null("rank") == "rank")  # rows of stages are the largest of their ranks
    times = ("computing", "communication", "overlapped", "free", "preparing")
    if rows.height and "Preparing" not in rows.columns:
        problems.append(Problem(_STEPS, NO_PREPARING, 0))
    sums = rows.select(
        rank=pl.col("Index").cast(pl.Int32, strict=False),
        step=column(rows, "Step").str.extract(r"([0-9]+)").cast(pl.Int32, strict=False).fill_null(0),
        **{name: nanoseconds(column(rows, _TABLE[name])) for name in times},
    ).with_columns(pl.col("preparing").fill_null(0))
    has_all = pl.all_horizontal(pl.all().is_not_null())
    complete_rows = drop_invalid(sums, has_all, problems, _STEPS, "row", "without a rank or a time")
    overlap_limit = pl.min_horizontal("computing", "communication")
    in_range = pl.all_horizontal(pl.col(times).is_between(0, _MAX_NS))
    valid = (pl.col("rank") >= 0) & in_range & (pl.col("overlapped") <= overlap_limit + _ROUNDING_NS)
    valid_rows = complete_rows.filter(valid).with_columns(overlapped=pl.min_horizontal("overlapped", overlap_limit))
    if lost := complete_rows.height - valid_rows.height:
        row = complete_rows.filter(~valid).row(0, named=True)
        example = ", ".join(f"{name} {row[name] / 1000:.3f}" for name in times)
        report_lost(problems, _STEPS, lost, "row", f"with invalid times left out, for example rank {row['rank']}: {example} us")
    duration = pl.col("computing") + pl.col("communication") - pl.col("overlapped") + pl.col("free") + pl.col("preparing")
    end = duration.cum_sum().over("rank") + begin_ns
    return valid_rows.sort("rank", "step").with_columns(start_ns=end - duration, end_ns=end)


def _database_sums(path: Path, problems: list[Problem]) -> pl.DataFrame:
    if not (path / _DATABASE).is_file():
        return pl.DataFrame()
    count, columns = len(problems), list(_TABLE)
    rows = read_rows(path / _DATABASE, "ClusterStepTraceTime", columns, [])
    if rows is None:
        columns.remove("preparing")
        rows = read_rows(path / _DATABASE, "ClusterStepTraceTime", columns, problems)
    if rows is None:
        if len(problems) == count:
            problems.append(Problem(_DATABASE, f"no table ClusterStepTraceTime with the columns {', '.join(columns)}", 1))
        return pl.DataFrame()
    texts = [[None if cell is None else str(cell) for cell in row] for row in rows]
    return pl.DataFrame(texts, {_TABLE[name]: pl.String for name in columns}, orient="row")


def _wait_args(sums: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """rank, step, args: transit, wait and idle time of a step's operators, if these are all of its communication."""
    divided = calls.filter(pl.all_horizontal(pl.col(*_PARTS).is_not_null()))
    totals = divided.group_by("rank", "step").agg(pl.col("dur_ns", *_PARTS).sum())
    covered = sums.join(totals, on=["rank", "step"]).filter(pl.col("dur_ns") >= _ALL * pl.col("communication"))
    return covered.select("rank", "step", args=pl.struct(*_PARTS).struct.json_encode())


def _draw(sums: pl.DataFrame, wait_args: pl.DataFrame) -> pl.DataFrame:
    """Computing, communication and steps as spans."""
    group, start = pl.format("NPU {}", "rank"), pl.col("start_ns") + pl.col("preparing")
    parts = []
    for name, kind, start_ns in (
        ("computing", "kernel", start),
        ("communication", "communication", start + pl.col("computing") - pl.col("overlapped")),
    ):
        spans = sums.filter(pl.col(name) > 0).select(
            "rank", "step", kind=pl.lit(kind), name=pl.lit(name), start_ns=start_ns, dur_ns=pl.col(name), op_type=pl.lit(name),
            group=group, label=pl.lit(f"{name}, the sum of each step"), track_kind=pl.lit("stream"), device=pl.col("rank"),
        )  # fmt: skip
        args = wait_args if kind == "communication" else wait_args.clear()
        parts.append(spans.join(args, on=["rank", "step"], how="left", maintain_order="left"))
    duration = pl.col("end_ns") - pl.col("start_ns")
    marks = sums.select(
        "rank", "step", "start_ns", kind=pl.lit("step"), name=pl.format("ProfilerStep#{}", "step"), dur_ns=duration,
        group=group, label=pl.lit("steps"), track_kind=pl.lit("annotation"),
    )  # fmt: skip
    return pl.concat([*parts, marks], how="diagonal")


def _calls(path: Path, problems: list[Problem]) -> pl.DataFrame:
    """Communication operators as they ran, on the clock of the job. The sums include them."""
    rows: list[tuple[Any, ...]] = []
    invalid = 0
    for step, name, rank, entry in _entries(path / _CALLS, problems):
        times = entry.get("Communication Time Info") if isinstance(entry, dict) else None
        try:
            start, duration = to_int(times["Start Timestamp(us)"], 1000), to_int(times["Elapse Time(ms)"], 1e6)  # type: ignore[index]
            parts = [_milliseconds(times, key) for key in _PARTS.values()]
            if start < 0 or not 0 <= duration <= _MAX_NS or to_index(rank) < 0:
                invalid += 1
                continue
            rows.append((to_index(rank), step, name.partition("@")[0], start, duration, json.dumps(entry, ensure_ascii=False), *parts))
        except (KeyError, TypeError, ValueError):
            continue  # totals have no start
    report_lost(problems, _CALLS, invalid, "operator", "with invalid times left out")
    columns = {"rank": pl.Int32, "step": pl.Int32, "name": pl.String, "start_ns": pl.Int64, "dur_ns": pl.Int64, "args": pl.String}
    return pl.DataFrame(rows, columns | dict.fromkeys(_PARTS, pl.Int64), orient="row").with_columns(
        kind=pl.lit("annotation"),
        group=pl.format("NPU {}", "rank"),
        label=pl.lit("communication operators, on the clock of the job"),
        track_kind=pl.lit("annotation"),
    )


def _milliseconds(times: Any, key: str) -> int | None:
    try:
        return to_int(times[key], 1e6)
    except (KeyError, ValueError):
        return None


def _links(path: Path, problems: list[Problem]) -> pl.DataFrame:
    rows: list[tuple[Any, ...]] = []
    invalid = 0
    for step, name, pair, entry in _entries(path / _MATRIX, problems):
        if name == "Total Op Info":
            continue
        try:
            src, dst, transport, size, time = pair_link(pair, entry)
            if min(src, dst, size, time) < 0:
                raise ValueError(pair)
            rows.append((step, name.partition("@")[0], src, dst, transport, size, time))
        except (KeyError, TypeError, ValueError):
            invalid += 1
    report_lost(problems, _MATRIX, invalid, "link", "without two ranks, a size and a time")
    return link_table(rows).with_columns(rank="src")


def _entries(file: Path, problems: list[Problem]) -> list[tuple[int | None, str, str, Any]]:
    """step, operator, rank or pair of ranks, entry: of all groups."""
    document = read_json(file, problems) if file.is_file() else None
    return [(digits_in(str(step)), str(name), str(member), entry) for _, step, name, member, entry in nested_items(document, 4)]
