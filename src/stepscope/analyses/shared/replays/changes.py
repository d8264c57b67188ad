"""Changes of the durations of a replay: which operators, kernels, transfers and waits take more or less time."""

import difflib
import fnmatch
import math
import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.analyses.shared.replays.nodes import KINDS, Graph
from stepscope.analyses.shared.steps.host_phases import host_spans
from stepscope.errors import UsageError
from stepscope.model import intervals
from stepscope.model.intervals import Bools, Ints
from stepscope.model.parameters import check_word, listing
from stepscope.model.trace import Trace

REMOVABLE = {
    "input_wait": "waits of the program for its input pipeline",
    "sync": "waits of the program for the device",
    "launch_latency": "time from a launch call until the device can start",
    "copy": "copies and fills",
    "communication": "transfers between ranks, and waits for other ranks in them",
    "host": "time of the host's program",
    "device": "time of kernels, copies and transfers on the device",
}
NEVER = -(1 << 60)  # a lag that never binds
_HOST_KINDS = ["op", "scope", "annotation", "python", "data", "api"]


class Durations(NamedTuple):
    """Durations of the nodes of a graph and lags of its dependencies."""

    duration: Ints
    lag: Ints


def unchanged(graph: Graph) -> Durations:
    return Durations(graph.duration.copy(), graph.lag.copy())


def remove(graph: Graph, durations: Durations, word: str) -> None:
    """Set the time of one of REMOVABLE to zero, in place."""
    duration, lag = durations
    node = np.repeat(np.arange(len(graph.kind)), np.diff(graph.offset))
    target = graph.kind[node]
    is_task = np.isin(graph.kind, [KINDS.index(kind) for kind in ("kernel", "copy", "communication")])
    if word == "input_wait":
        duration[graph.kind == KINDS.index("input")] = 0
    elif word == "sync":
        lag[graph.on_host & (target == KINDS.index("sync"))] = NEVER
    elif word == "launch_latency":
        lag[graph.on_host & is_task[node]] = 0
    elif word == "copy":
        duration[graph.kind == KINDS.index("copy")] = 0
    elif word == "communication":
        duration[graph.kind == KINDS.index("communication")] = 0
        lag[graph.kind[graph.node] == KINDS.index("meeting")] = NEVER
    elif word == "host":
        duration[graph.kind == KINDS.index("host")] = 0
        duration[graph.kind == KINDS.index("input")] = 0
        lag[graph.on_host] = 0
    elif word == "device":
        duration[is_task] = 0
        lag[graph.on_host | is_task[node]] = 0
    else:
        check_word("time to remove", word, REMOVABLE)


def infinite_bandwidth(graph: Graph, durations: Durations) -> None:
    """Transfers take no time, in place; ranks still wait for the last of them to start."""
    durations.duration[graph.kind == KINDS.index("communication")] = 0


def scale(trace: Trace, graph: Graph, durations: Durations, name: str, factor: float) -> int:
    """Multiply the time of everything of this name, in place: how many tasks or host spans that were.

    A name is that of a kernel, of an operator or its type, or of a module (`layer1/conv1` with all below it). If no work of the
    device has it, the time of host operators, modules, annotations and functions of this name changes.
    """
    tasks = _tasks(trace)
    wanted = tasks.filter(_matches(tasks, name)).select("rank", "span")
    key = pl.DataFrame({"rank": graph.rank.astype(np.int32), "span": graph.span}).with_row_index("node").filter(pl.col("span") >= 0)
    nodes = key.join(wanted, on=["rank", "span"])["node"].cast(pl.Int64).to_numpy()
    if wanted.height:  # work outside of the completely recorded steps changes none of them
        durations.duration[nodes] = np.rint(durations.duration[nodes] * factor).astype(np.int64)
        return int(wanted.height)
    return _scale_host(trace, graph, durations, name, factor)


_SCALE = re.compile(r"\s*(.+?)\s*=([^=,]*)(?:,|$)")  # names of kernels contain commas


def parse_scales(text: str) -> list[tuple[str, float]]:
    """Names and factors of `aten::mm=0.5,aten::add=0`."""
    pairs, at = [], 0
    while at < len(text):
        match = _SCALE.match(text, at)
        try:
            factor = float(match[2]) if match else math.nan
        except ValueError:
            factor = math.nan
        if match is None or not 0 <= factor <= 1e6:
            item = match[0].rstrip(",") if match else text[at:]
            raise UsageError(f"scale is {item!r}; expected NAME=FACTOR with a factor from 0 to 1000000, such as aten::mm=0.5")
        pairs.append((match[1], factor))
        at = match.end()
    return pairs


def nearest_names(word: str, names: Iterable[str]) -> list[str]:
    """Up to three names that contain the word or are similar to it, whatever their case and namespace."""
    short = {name: name.rpartition("::")[2].rpartition("/")[2].lower() for name in names}
    wanted = word.rpartition("::")[2].rpartition("/")[2].lower()
    containing = sorted((name for name in short if wanted and wanted in name.lower()), key=lambda name: (len(name), name))
    similar = difflib.get_close_matches(wanted, set(short.values()), 3, 0.6)
    rest = [name for text in similar for name in sorted(short) if short[name] == text and name not in containing]
    return [*containing, *rest][:3]


def _tasks(trace: Trace) -> pl.DataFrame:
    return (
        trace.spans.filter(pl.col("kind").is_in(["kernel", "copy", "set", "communication"]))
        .select("rank", "span", pl.col("name", "op_type", "scope").cast(pl.String))
        .collect()
    )


def _matches(spans: pl.DataFrame, name: str) -> pl.Expr:
    """Exact names, patterns with * and ?, or the path of a module."""
    columns = [column for column in ("name", "op_type") if column in spans.columns]
    texts = {text for column in columns for text in spans[column].unique().drop_nulls().to_list()}
    chosen = [text for text in texts if text == name] or [text for text in texts if fnmatch.fnmatchcase(text, name)]
    by_name = pl.any_horizontal(pl.col(column).is_in(chosen) for column in columns)
    path = pl.col("scope").fill_null("")
    inside = (
        (path == name) | path.str.starts_with(f"{name}/") | path.str.ends_with(f"/{name}") | path.str.contains(f"/{name}/", literal=True)
    )
    return (by_name | inside).fill_null(False)


def _scale_host(trace: Trace, graph: Graph, durations: Durations, name: str, factor: float) -> int:
    spans = (
        host_spans(trace)
        .filter(pl.col("kind").is_in(_HOST_KINDS))
        .select("rank", pl.col("name", "op_type", "scope").cast(pl.String), "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .collect()
    )
    rows = spans.filter(_matches(spans, name))
    if rows.is_empty():
        tables = (spans, _tasks(trace))
        columns = [table[column] for table in tables for column in ("name", "op_type", "scope") if column in table.columns]
        near = nearest_names(name, {text for column in columns for text in column.unique().drop_nulls().to_list()})
        hint = f"; the nearest names are {listing([repr(text) for text in near])}" if near else ""
        raise UsageError(f"nothing is named {name!r}{hint}; `stepscope show totals` lists the names")
    program: Bools = np.isin(graph.kind, [KINDS.index("host"), KINDS.index("input")])
    for (rank,), part in rows.group_by("rank"):
        nodes = np.flatnonzero(program & (graph.rank == rank))
        covered = intervals.covered(
            intervals.merge(part["start_ns"].to_numpy(), part["end_ns"].to_numpy()), graph.start[nodes], graph.end[nodes]
        )
        changed = durations.duration[nodes] - np.rint(covered * (1 - factor)).astype(np.int64)
        durations.duration[nodes] = np.maximum(changed, 0)
    return rows.height
