"""MindInsight's Marey timeline: what all devices ran in one step, as it answers it, {"maps": {"device0": {operator: {st, ed, dur}}}}.

Microseconds on one clock. Beside it may lie `scope_map_N.json`, {"scope_map": {operator: scope}}; N is the step.
"""

import re
from pathlib import Path
from typing import Any

import polars as pl

from stepscope import units
from stepscope.errors import DataError
from stepscope.readers import Options
from stepscope.readers._documents import LEADS_OUT, decoded, exact, index, lies_beside
from stepscope.readers._kineto import Problem
from stepscope.trace import Meta, Trace, complete

_COMMUNICATION = r"^(?i)(all|reduce_?scatter|broadcast|send|receive|hcom|gather|barrier)"
_SPANS = {"rank": pl.Int32, "name": pl.String, "start_ns": pl.Int64, "dur_ns": pl.Int64}
FORMAT = "MindInsight Marey JSON"


def sniff(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return re.match(rb'\s*\{\s*"maps"\s*:\s*\{', file.read(4096)) is not None


def read(path: Path, options: Options) -> Trace:
    try:
        found = decoded(path.read_bytes())
        maps: dict[str, dict[str, Any]] = found["maps"]
        devices = {index(re.sub(r"[^0-9]", "", name)): calls for name, calls in maps.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(path, f"expected the operators of each device ({error})") from error
    step = _step(path)
    problems: list[Problem] = []
    spans = _calls(devices, problems)
    if spans.is_empty():
        raise DataError(path, "no device has operators here")
    scopes = _scopes(path, step, problems)
    kind = pl.when(pl.col("name").str.contains(_COMMUNICATION)).then(pl.lit("communication")).otherwise(pl.lit("kernel"))
    spans = spans.with_columns(
        kind=kind,
        track=pl.when(kind == "communication").then(1).otherwise(0),
        op_type=pl.col("name").str.extract(r"^(.*?)(?:-op\d+)?$"),
        category=pl.lit("AI_CORE"),
        step=pl.lit(step, pl.Int32),
        scope=pl.col("name").replace_strict(scopes, default=None, return_dtype=pl.String) if scopes else pl.lit(None, pl.String),
    )
    ends = spans.group_by("rank", maintain_order=True).agg(
        start_ns=pl.col("start_ns").min(), end_ns=(pl.col("start_ns") + pl.col("dur_ns")).max()
    )
    marks = ends.select("rank", "start_ns", dur_ns=pl.col("end_ns") - pl.col("start_ns"), name=pl.lit(f"Step {step}"), kind=pl.lit("step"),
                        track=pl.lit(2, pl.Int32), step=pl.lit(step, pl.Int32))  # fmt: skip
    spans = pl.concat([spans, marks], how="diagonal_relaxed")
    parts = [complete(part.sort("start_ns")) for part in spans.partition_by("rank", maintain_order=True)]
    ranks = sorted(devices)
    lanes = spans.select("rank", "track").unique().sort("rank", "track").with_columns(
        group=pl.format("NPU {}", "rank"),
        label=pl.col("track").replace_strict({0: "operators", 1: "communication", 2: "steps"}, return_dtype=pl.String),
        kind=pl.when(pl.col("track") == 2).then(pl.lit("annotation")).otherwise(pl.lit("stream")),
        device=pl.when(pl.col("track") != 2).then("rank"),
        sort="track",
        pid=pl.col("rank").cast(pl.String),
        tid=pl.col("track").cast(pl.String),
    )  # fmt: skip
    tables = {
        "spans": pl.concat(parts),
        "tracks": lanes,
        "steps": ends.with_columns(step=pl.lit(step, pl.Int32), phase=pl.lit("train"), how=pl.lit("marker")),
        "devices": pl.DataFrame({"rank": ranks, "device": ranks, "kind": ["aicore"] * len(ranks)}),
        "problems": pl.DataFrame(problems, schema={"where": pl.String, "what": pl.String, "lost": pl.Int64}, orient="row").with_columns(
            file=pl.lit(str(path)), rank=pl.lit(ranks[0], pl.Int32)
        ),
    }
    stages = found.get("stage_data")
    of = {name: one.get("devices") for name, one in stages.items() if isinstance(one, dict)} if isinstance(stages, dict) else {}
    extra = {"stages": of} if of else {}
    return Trace(tables, Meta(format="marey", framework="mindspore", ranks=ranks, extra=extra))


def beside(path: Path) -> list[Path]:
    """The map of scopes."""
    file = path.parent / f"scope_map_{_step(path)}.json"
    return [file] if lies_beside(file) else []


def _step(path: Path) -> int:
    number = re.search(r"([0-9]{1,9})\.json$", path.name)
    return int(number[1]) if number else 1


def _calls(devices: dict[int, dict[str, Any]], problems: list[Problem]) -> pl.DataFrame:
    rows, odd = [], 0
    for rank, calls in devices.items():
        for name, said in calls.items() if isinstance(calls, dict) else []:
            try:
                start, end = exact(said["st"], 1000), exact(said["ed"], 1000)
                rows.append((rank, name, start, max(end - start, 0)))
            except (KeyError, TypeError, ValueError):
                odd += 1
    if odd:
        problems.append(Problem("maps", f"{units.count(odd, 'operator')} without a start and an end", odd))
    problems.append(Problem("maps", "of an operator that ran several times in the step, MindInsight keeps the last", 0))
    return pl.DataFrame(rows, _SPANS, orient="row")


def _scopes(path: Path, step: int, problems: list[Problem]) -> dict[str, str]:
    file = path.parent / f"scope_map_{step}.json"
    if not lies_beside(file):
        problems += [Problem(file.name, LEADS_OUT, 1)] if file.is_symlink() else []
        return {}
    try:
        found = decoded(file.read_bytes())["scope_map"]
        return {str(name): str(scope).strip("/") for name, scope in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problems.append(Problem(file.name, f"not read ({error})", 1))
        return {}
