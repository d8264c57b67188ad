"""communication_matrix.json (transfers between ranks) and communication.json (wait times of calls)."""

import json
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.model import schema
from stepscope.model.trace import Trace
from stepscope.readers.ascend.common.tables import nested_items, read_json, report_lost
from stepscope.readers.common.documents import digits_in, files, to_index, to_int
from stepscope.readers.common.problems import Problem

WAIT_COLUMNS: dict[str, Any] = {
    "name": pl.String,
    "group": pl.String,  # the communicator's name, or its number
    "start_ns": pl.Int64,
    "wait_ns": pl.Int64,
    "synchronization_ns": pl.Int64,
    "transit_ns": pl.Int64,
    "idle_ns": pl.Int64,
    "links": pl.String,  # JSON text: kind of link -> bytes, dur_ns
}
_TIMES = ("Wait Time(ms)", "Synchronization Time(ms)", "Transit Time(ms)", "Idle Time(ms)")


def matrix_links(folder: Path, problems: list[Problem]) -> pl.DataFrame:
    """Transfers between ranks, summed per step, operator, pair and transport: for results without tasks on planes.

    The column `group` is added to those of `links`: src and dst are ranks within the group.
    """
    rows = []
    for file in files(folder, "communication_matrix*.json"):
        rows += matrix_rows(read_json(file, problems), file.name, problems)
    groups = pl.Series("group", [row[-1] for row in rows], pl.String)
    return link_table([row[:-1] for row in rows]).with_columns(groups)


def link_table(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    """The columns of `links` of one rank."""
    return pl.DataFrame(rows, {name: dtype for name, dtype in schema.TABLES["links"].items() if name != "rank"}, orient="row")


def matrix_rows(document: Any, file: str, problems: list[Problem]) -> list[tuple[Any, ...]]:
    """Links of a communication matrix: step -> collective or p2p -> operator -> "src-dst" -> sums."""
    rows, invalid = [], 0
    for step, _, operators in nested_items(document, 2):
        names = operators if isinstance(operators, dict) else {}
        # The entries top1, middle and bottom are single operators, which the total includes.
        totals = {name: pairs for name, pairs in names.items() if "-total" in name} or names
        for name, pair, entry in nested_items(totals, 2):
            try:
                src, dst, transport, size, time = pair_link(pair, entry)
            except (ValueError, TypeError, KeyError, AttributeError):
                invalid += 1
                continue
            operator, _, group = name.partition("@")
            rows.append((digits_in(str(step)), operator.replace("-total", ""), src, dst, transport, size, time, group or None))
    report_lost(problems, file, invalid, "pair", "of ranks without size and time")
    return rows


def pair_link(pair: str, entry: Any) -> tuple[int, int, str, int, int]:
    """src, dst, transport, bytes and dur_ns of an entry `"src-dst": {...}`; an error that names what is missing."""
    src, dst = (to_index(rank) for rank in pair.split("-"))
    size, time = to_int(entry["Transit Size(MB)"], 1e6), to_int(entry["Transit Time(ms)"], 1e6)
    return src, dst, str(entry.get("Transport Type") or ""), size, time


def wait_times(folder: Path, problems: list[Problem]) -> pl.DataFrame:
    """Wait, synchronization, transit and idle time of each communication call, and the bytes it sent per kind of link."""
    rows, invalid = list[tuple[Any, ...]](), 0
    for file in files(folder, "communication.json"):
        for _, _, name, entry in nested_items(read_json(file, problems), 3):
            if name.startswith("Total Op Info"):
                continue
            try:
                times = entry["Communication Time Info"]
                start = to_int(times["Start Timestamp(us)"], 1000)
                call, _, group = name.partition("@")
                links = _links_text(entry.get("Communication Bandwidth Info") or {})
                rows.append((call, group or None, start, *(to_int(times[key], 1e6) for key in _TIMES), links))
            except (ValueError, TypeError, KeyError, AttributeError):
                invalid += 1
    report_lost(problems, "communication.json", invalid, "transfer", "without times")
    return pl.DataFrame(rows, WAIT_COLUMNS, orient="row")


def _links_text(links: dict[str, Any]) -> str:
    """Bytes and time of the kinds of link that transferred something."""
    sums = {
        kind: {"bytes": to_int(entry["Transit Size(MB)"], 1e6), "dur_ns": to_int(entry["Transit Time(ms)"], 1e6)}
        for kind, entry in links.items()
    }
    return json.dumps({kind: entry for kind, entry in sums.items() if entry["bytes"]})


def add_wait_times(trace: Trace, times: pl.DataFrame) -> Trace:
    """The trace with the wait times among the args of its communication calls."""
    calls = (
        trace.spans.filter(pl.col("kind") == "communication").select("span", "start_ns", "args", pl.col("name").cast(pl.String)).collect()
    )
    if calls.is_empty() or times.is_empty():
        return trace
    # Match the nearest call of the same name: starts are floats of microseconds since 1970, in databases off by some microseconds.
    times = times.sort("start_ns").with_row_index("row").with_columns(entry_ns=pl.col("start_ns"))
    pairs = calls.sort("start_ns").join_asof(times, on="start_ns", by="name", strategy="nearest", check_sortedness=False)
    pairs = pairs.drop_nulls("row").sort((pl.col("start_ns") - pl.col("entry_ns")).abs(), maintain_order=True)
    pairs = pairs.unique("row", keep="first", maintain_order=True)
    numbers = pl.struct("wait_ns", "synchronization_ns", "transit_ns", "idle_ns").struct.json_encode().str.strip_suffix("}")
    group = pl.struct(pl.col("group").alias("Process Group Name")).struct.json_encode().str.strip_prefix("{").str.strip_suffix("}")
    unnamed = pl.col("group").is_not_null() & pl.col("args").str.json_path_match("$['Process Group Name']").is_null()
    added = pl.concat_str(
        numbers,
        pl.when(unnamed).then(pl.concat_str(pl.lit(","), group)).otherwise(pl.lit("")),
        pl.lit(',"links":'),
        pl.col("links").fill_null("{}"),
        pl.lit("}"),
    )
    return add_args(trace, pairs.select("span", added=added))


def add_args(trace: Trace, rows: pl.DataFrame) -> Trace:
    """The trace with the JSON object `added` merged into the args of some spans."""
    if rows.is_empty():
        return trace
    tables = trace.tables
    tables["spans"] = (
        tables["spans"]
        .join(rows.lazy(), on="span", how="left", maintain_order="left")
        .with_columns(args=merged_args(pl.col("args"), pl.col("added"), ","))
        .drop("added")
    )
    return Trace(tables, trace.meta)


def merged_args(args: pl.Expr, added: pl.Expr, separator: str = ", ") -> pl.Expr:
    """JSON text of two objects as one; either may be null."""
    joined = pl.concat_str(args.str.strip_suffix("}"), pl.lit(separator), added.str.strip_prefix("{"))
    empty = args.is_null() | (args.str.len_bytes() <= 2)
    return pl.when(added.is_null()).then(args).when(empty).then(added).otherwise(joined)
