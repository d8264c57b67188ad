"""`cluster_analysis_output` of Ascend's msprof-analyze: sums over all ranks of a job, without a timeline.

    cluster_step_trace_time.csv             per step and rank: Computing, Communication, Overlapped, Free ... in us
    cluster_communication_matrix.json       group -> step -> operator -> "src-dst" -> transport, size, time
    cluster_communication.json              group -> step -> operator -> rank -> when it started and how long it took
    communication_group.json                which ranks make up a group
    cluster_analysis.db                     the first of these as a table

A step of a rank is drawn as its sums: computing, then communication so far into it as the two overlap, then nothing. The first begins
with the first operator of communication, where the moments of these are known.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl

from stepscope import units
from stepscope.errors import DataError
from stepscope.readers import Options
from stepscope.readers._ascend_sqlite import Connection
from stepscope.readers._ascend_tables import column, nanoseconds, read_json, read_table
from stepscope.readers._documents import exact, in_text, index
from stepscope.readers._kineto import Problem
from stepscope.trace import Meta, Trace, complete

_STEPS, _DATABASE = "cluster_step_trace_time.csv", "cluster_analysis.db"
_PARTS = ["transit_ns", "wait_ns", "idle_ns"]
_LONGEST_NS, _ROUNDED_NS = 2**55, 1000  # a year; the tables are of microseconds, each rounded for itself
_ALL = 0.99  # of a step's communication; operators that run at the same time are more than it
_FILES = (_STEPS, _DATABASE, "cluster_communication_matrix.json", "cluster_communication.json")
FORMAT = "cluster_analysis_output"


def sniff(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in _FILES)


def read(path: Path, options: Options) -> Trace:
    problems: list[Problem] = []
    transfers = _transfers(path, problems)
    sums = _sums(path, problems, transfers["start_ns"].min() or 0)  # type: ignore[arg-type]
    links = _links(path, problems)
    ranks = sorted({*sums["rank"], *transfers["rank"], *links["rank"]})
    if not ranks:
        raise DataError(path, "no rank is told of in it")
    problems.append(Problem("", "only sums of each step are known: they are drawn one after the other, not as they ran", 0))
    spans = pl.concat([_laid_out(sums, _parts(sums, transfers)), transfers.drop(_PARTS)], how="diagonal_relaxed")
    lanes = spans.select("rank", "group", "label", "track_kind", "device").unique(maintain_order=True)
    lanes = lanes.with_columns(track=pl.int_range(pl.len(), dtype=pl.Int32).over("rank"))
    placed = spans.join(lanes, on=["rank", "group", "label", "track_kind", "device"], how="left", nulls_equal=True, maintain_order="left")
    # Tracks are numbered by rank: nesting is found rank by rank.
    filled = [complete(part) for (_,), part in placed.group_by("rank", maintain_order=True)]
    steps = sums.select("rank", "step", start_ns="start_ns", end_ns="end_ns", how=pl.lit("marker"))
    extra = read_json(path / "communication_group.json", problems) if (path / "communication_group.json").is_file() else None
    tables = {
        "spans": pl.concat(filled) if filled else pl.DataFrame(),
        "tracks": lanes.select("rank", "track", "group", "label", "device", kind="track_kind", sort="track", pid="group", tid="label"),
        "steps": steps,
        "links": links,
        "devices": pl.DataFrame({"rank": ranks, "device": ranks, "kind": ["aicore"] * len(ranks)}),
        "problems": pl.DataFrame(problems, schema={"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row").with_columns(
            file=pl.lit(str(path)), rank=pl.lit(ranks[0], pl.Int32)
        ),
    }  # fmt: skip
    meta = Meta(format="cluster_output", ranks=ranks, extra={"groups": extra} if extra else {})
    return Trace({name: rows for name, rows in tables.items() if rows.width}, meta)


_SUMS = {"rank": pl.Int32, "step": pl.Int32, "computing": pl.Int64, "communication": pl.Int64, "overlapped": pl.Int64, "free": pl.Int64}


def _sums(path: Path, problems: list[Problem], first: int) -> pl.DataFrame:
    """Per rank and step, in ns; steps of a rank stand one behind the other, from a first moment on."""
    rows = read_table(path / _STEPS, problems) if (path / _STEPS).is_file() else _from_database(path, problems)
    if "Index" not in rows.columns:
        return pl.DataFrame(schema=_SUMS | {"start_ns": pl.Int64, "end_ns": pl.Int64})
    # Rows of stages are the largest of their ranks.
    own = rows.filter(column(rows, "Type").fill_null("rank") == "rank")
    found = own.select(
        rank=pl.col("Index").cast(pl.Int32, strict=False),
        step=column(rows, "Step").str.extract(r"(\d+)").cast(pl.Int32, strict=False).fill_null(0),
        computing=nanoseconds(column(rows, "Computing")),
        communication=nanoseconds(column(rows, "Communication")),
        overlapped=nanoseconds(column(rows, "Overlapped")),
        free=nanoseconds(column(rows, "Free")),
    )
    known = found.drop_nulls()
    if lost := found.height - known.height:
        problems.append(Problem(_STEPS, f"{units.count(lost, 'row')} without a rank or a time", lost))
    times, least = pl.col("computing", "communication", "overlapped", "free"), pl.min_horizontal("computing", "communication")
    fits = (pl.col("rank") >= 0) & pl.all_horizontal(times.is_between(0, _LONGEST_NS)) & (pl.col("overlapped") <= least + _ROUNDED_NS)
    whole = known.filter(fits).with_columns(overlapped=pl.min_horizontal("overlapped", least))
    if lost := known.height - whole.height:
        row = known.filter(~fits).row(0, named=True)
        example = ", ".join(f"{name} {row[name] / 1000:.3f}" for name in ("computing", "communication", "overlapped", "free"))
        what = f"{units.count(lost, 'row')} with invalid times left out, for example rank {row['rank']}: {example} us"
        problems.append(Problem(_STEPS, what, lost))
    length = pl.col("computing") + pl.col("communication") - pl.col("overlapped") + pl.col("free")
    behind = length.cum_sum().over("rank") + first
    return whole.sort("rank", "step").with_columns(start_ns=behind - length, end_ns=behind)


def _from_database(path: Path, problems: list[Problem]) -> pl.DataFrame:
    names = {"step": "Step", "type": "Type", "index": "Index", "computing": "Computing", "communication": "Communication"}
    names |= {"overlapped": "Overlapped", "free": "Free"}
    if not (path / _DATABASE).is_file():
        return pl.DataFrame()
    try:
        with closing(Connection(path / _DATABASE)) as database:
            known = len(problems)
            rows = database.rows("ClusterStepTraceTime", tuple(names), problems)
    except sqlite3.Error as error:
        problems.append(Problem(_DATABASE, f"no table of steps can be read ({error})", 1))
        return pl.DataFrame()
    if rows is None:
        if len(problems) == known:
            problems.append(Problem(_DATABASE, f"no table ClusterStepTraceTime with the columns {', '.join(names)}", 1))
        return pl.DataFrame()
    texts = [[None if cell is None else str(cell) for cell in row] for row in rows]
    return pl.DataFrame(texts, dict.fromkeys(names.values(), pl.String), orient="row")


def _parts(sums: pl.DataFrame, transfers: pl.DataFrame) -> pl.DataFrame:
    """rank, step, args: transit, wait and idle time of all operators of a step, where these are all of its communication."""
    divided = transfers.filter(pl.all_horizontal(pl.col(_PARTS).is_not_null()))
    whole = divided.group_by("rank", "step").agg(pl.col("dur_ns", *_PARTS).sum())
    known = sums.join(whole, on=["rank", "step"]).filter(pl.col("dur_ns") >= _ALL * pl.col("communication"))
    return known.select("rank", "step", args=pl.struct(_PARTS).struct.json_encode())


def _laid_out(sums: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    parts = []
    for name, kind, start in (
        ("computing", "kernel", pl.col("start_ns")),
        ("communication", "communication", pl.col("start_ns") + pl.col("computing") - pl.col("overlapped")),
    ):
        parts.append(
            sums.filter(pl.col(name) > 0).select(
                "rank", "step", kind=pl.lit(kind), name=pl.lit(name), start_ns=start, dur_ns=pl.col(name), op_type=pl.lit(name),
                group=pl.format("NPU {}", "rank"), label=pl.lit(f"{name}, the sum of each step"), track_kind=pl.lit("stream"),
                device=pl.col("rank"),
            ).join(told.filter(pl.lit(kind == "communication")), on=["rank", "step"], how="left", maintain_order="left")
        )  # fmt: skip
    parts.append(
        sums.select(
            "rank", "step", kind=pl.lit("step"), name=pl.format("ProfilerStep#{}", "step"), start_ns="start_ns",
            dur_ns=pl.col("end_ns") - pl.col("start_ns"), op_type=pl.lit(None, pl.String), group=pl.format("NPU {}", "rank"),
            label=pl.lit("steps"), track_kind=pl.lit("annotation"), device=pl.lit(None, pl.Int32), args=pl.lit(None, pl.String),
        )
    )  # fmt: skip
    return pl.concat(parts, how="diagonal")


def _transfers(path: Path, problems: list[Problem]) -> pl.DataFrame:
    """Operators of communication as they ran, on the clock of the job: beside the sums, of which they are part."""
    rows: list[tuple[Any, ...]] = []
    odd = 0
    file = path / "cluster_communication.json"
    for step, name, rank, said in _entries(file, problems):
        times = said.get("Communication Time Info") if isinstance(said, dict) else None
        try:
            start, length = exact(times["Start Timestamp(us)"], 1000), exact(times["Elapse Time(ms)"], 1e6)  # type: ignore[index]
            parts = [_milliseconds(times, key) for key in ("Transit Time(ms)", "Wait Time(ms)", "Idle Time(ms)")]
            if start < 0 or not 0 <= length <= _LONGEST_NS or index(rank) < 0:
                odd += 1
                continue
            rows.append((index(rank), step, name.partition("@")[0], start, length, str(said).replace("'", '"'), *parts))
        except (KeyError, TypeError, ValueError):
            continue  # totals have no start
    if odd:
        problems.append(Problem(file.name, f"{units.count(odd, 'operator')} with invalid times left out", odd))
    columns = {"rank": pl.Int32, "step": pl.Int32, "name": pl.String, "start_ns": pl.Int64, "dur_ns": pl.Int64, "args": pl.String}
    return pl.DataFrame(rows, columns | dict.fromkeys(_PARTS, pl.Int64), orient="row").with_columns(
        kind=pl.lit("annotation"),
        op_type=pl.lit(None, pl.String),
        group=pl.format("NPU {}", "rank"),
        label=pl.lit("communication operators, on the clock of the job"),
        track_kind=pl.lit("annotation"),
        device=pl.lit(None, pl.Int32),
    )


def _milliseconds(times: Any, key: str) -> int | None:
    try:
        return exact(times[key], 1e6)
    except (KeyError, ValueError):
        return None


def _links(path: Path, problems: list[Problem]) -> pl.DataFrame:
    rows: list[tuple[Any, ...]] = []
    odd = 0
    for step, name, pair, said in _entries(path / "cluster_communication_matrix.json", problems):
        if name == "Total Op Info":
            continue
        try:
            src, dst = (index(one) for one in str(pair).split("-"))
            size, time = exact(said["Transit Size(MB)"], 1e6), exact(said["Transit Time(ms)"], 1e6)
            if min(src, dst, size, time) < 0:
                raise ValueError(pair)
            rows.append((src, step, name.partition("@")[0], src, dst, str(said.get("Transport Type") or ""), size, time))
        except (KeyError, TypeError, ValueError):
            odd += 1
    if odd:
        problems.append(
            Problem("cluster_communication_matrix.json", f"{units.count(odd, 'link')} without two ranks, a size and a time", odd)
        )
    columns = {"rank": pl.Int32, "step": pl.Int32, "op": pl.String, "src": pl.Int32, "dst": pl.Int32, "transport": pl.String}
    return pl.DataFrame(rows, columns | {"bytes": pl.Int64, "dur_ns": pl.Int64}, orient="row")


def _entries(file: Path, problems: list[Problem]) -> list[tuple[int | None, str, str, Any]]:
    """group -> step -> operator -> rank or pair, flat."""
    found = read_json(file, problems) if file.is_file() else None
    rows: list[tuple[int | None, str, str, Any]] = []
    for steps in found.values() if isinstance(found, dict) else []:
        for step, operators in steps.items() if isinstance(steps, dict) else []:
            for name, members in operators.items() if isinstance(operators, dict) else []:
                for member, said in members.items() if isinstance(members, dict) else []:
                    rows.append((in_text(str(step)), str(name), str(member), said))
    return rows
