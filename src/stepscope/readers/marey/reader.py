"""MindInsight's Marey timeline: the operators of all devices in one step, {"maps": {"device0": {operator: {st, ed, dur}}}}.

Microseconds on one clock. The file `scope_map_N.json` next to it is {"scope_map": {operator: scope}}; N is the step.
"""

import re
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import DataError
from stepscope.model.trace import Meta, Trace, complete
from stepscope.readers import Options
from stepscope.readers.ascend.common.tables import report_lost
from stepscope.readers.common.documents import OUTSIDE_LINK, as_dict, is_inside_folder, parse_json, to_index, to_int
from stepscope.readers.common.problems import Problem, problem_frame

_COMMUNICATION = r"^(?i)(all|reduce_?scatter|broadcast|send|receive|hcom|gather|barrier)"
_SPANS = {"rank": pl.Int32, "name": pl.String, "start_ns": pl.Int64, "dur_ns": pl.Int64}
_TRACKS = {0: "operators", 1: "communication", 2: "steps"}
FORMAT = "MindInsight Marey JSON"


def sniff(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return re.match(rb'\s*\{\s*"maps"\s*:\s*\{', file.read(4096)) is not None


def read(path: Path, options: Options) -> Trace:
    try:
        document = parse_json(path.read_bytes())
        devices = {to_index(re.sub(r"[^0-9]", "", name)): calls for name, calls in document["maps"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(path, f"expected the operators of each device ({error})") from error
    problems: list[Problem] = []
    calls = _calls(devices, problems)
    if calls.is_empty():
        raise DataError(path, "no device has operators in it")
    step = _step(path)
    scopes = _scopes(path, problems)
    is_communication = pl.col("name").str.contains(_COMMUNICATION)
    calls = calls.with_columns(
        kind=pl.when(is_communication).then(pl.lit("communication")).otherwise(pl.lit("kernel")),
        track=is_communication.cast(pl.Int32),
        op_type=pl.col("name").str.extract(r"^(.*?)(?:-op[0-9]+)?$"),
        category=pl.lit("AI_CORE"),
        scope=pl.col("name").replace_strict(scopes, default=None, return_dtype=pl.String) if scopes else pl.lit(None, pl.String),
    )
    end = (pl.col("start_ns") + pl.col("dur_ns")).max()
    steps = calls.group_by("rank", maintain_order=True).agg(pl.col("start_ns").min(), end_ns=end)
    duration = pl.col("end_ns") - pl.col("start_ns")
    marks = steps.select(
        "rank", "start_ns", dur_ns=duration, name=pl.lit(f"Step {step}"), kind=pl.lit("step"), track=pl.lit(2, pl.Int32)
    )  # fmt: skip
    spans = pl.concat([calls, marks], how="diagonal_relaxed").with_columns(step=pl.lit(step, pl.Int32))
    nested = [complete(part.sort("start_ns")) for part in spans.partition_by("rank", maintain_order=True)]
    ranks = sorted(devices)
    tables = {
        "spans": pl.concat(nested),
        "tracks": _tracks(spans),
        "steps": steps.with_columns(step=pl.lit(step, pl.Int32), phase=pl.lit("train"), how=pl.lit("marker")),
        "devices": pl.DataFrame({"rank": ranks, "device": ranks, "kind": ["aicore"] * len(ranks)}),
        "problems": problem_frame(problems, path).with_columns(rank=pl.lit(ranks[0], pl.Int32)),
    }
    stages = {name: stage.get("devices") for name, stage in as_dict(document.get("stage_data")).items() if isinstance(stage, dict)}
    extra = {"incomplete_device_work": True} | ({"stages": stages} if stages else {})
    return Trace(tables, Meta(format="marey", framework="mindspore", ranks=ranks, extra=extra))


def _tracks(spans: pl.DataFrame) -> pl.DataFrame:
    is_step = pl.col("track") == 2
    return spans.select("rank", "track").unique().sort("rank", "track").with_columns(
        group=pl.format("NPU {}", "rank"),
        label=pl.col("track").replace_strict(_TRACKS, return_dtype=pl.String),
        kind=pl.when(is_step).then(pl.lit("annotation")).otherwise(pl.lit("stream")),
        device=pl.when(~is_step).then("rank"),
        sort="track",
        pid=pl.col("rank").cast(pl.String),
        tid=pl.col("track").cast(pl.String),
        stream=pl.when(~is_step).then("track").cast(pl.Int64),
    )  # fmt: skip


def beside(path: Path) -> list[Path]:
    return [file] if is_inside_folder(file := _scope_file(path)) else []


def _scope_file(path: Path) -> Path:
    return path.parent / f"scope_map_{_step(path)}.json"


def _step(path: Path) -> int:
    number = re.search(r"([0-9]{1,9})\.json$", path.name)
    return int(number[1]) if number else 1


def _calls(devices: dict[int, Any], problems: list[Problem]) -> pl.DataFrame:
    rows, invalid = [], 0
    for rank, calls in devices.items():
        for name, call in as_dict(calls).items():
            try:
                start, end = to_int(call["st"], 1000), to_int(call["ed"], 1000)
                rows.append((rank, name, start, max(end - start, 0)))
            except (KeyError, TypeError, ValueError):
                invalid += 1
    report_lost(problems, "maps", invalid, "operator", "without a start and an end")
    problems.append(Problem("maps", "MindInsight keeps only the last call of an operator that ran several times in the step", 0))
    return pl.DataFrame(rows, _SPANS, orient="row")


def _scopes(path: Path, problems: list[Problem]) -> dict[str, str]:
    file = _scope_file(path)
    if not is_inside_folder(file):
        problems += [Problem(file.name, OUTSIDE_LINK, 1)] if file.is_symlink() else []
        return {}
    try:
        scopes = parse_json(file.read_bytes())["scope_map"]
        return {str(name): str(scope).strip("/") for name, scope in scopes.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problems.append(Problem(file.name, f"not read ({error})", 1))
        return {}
