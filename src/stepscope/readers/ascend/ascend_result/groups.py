"""Groups of ranks on Ascend: the ranks of each communicator, and the parallel sizes of the job.

Each rank has them in profiler_metadata.json, and in the table META_DATA of databases:

    parallel_group_info     the communicator's name -> group_name, group_rank (of this rank), global_ranks
    distributed_args        tensor_model_parallel_size, pipeline_model_parallel_size, data_parallel_size, ..., world_size

Tasks of HCCL number ranks within their group. Names of calls (`hcom_allReduce__586_0_1`), communication.json and analysis.db have a number
instead of the communicator's name.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from stepscope.model import schema, units
from stepscope.model.trace import Trace
from stepscope.readers.ascend.common.communication_tables import add_args
from stepscope.readers.ascend.common.tables import read_json, report_lost
from stepscope.readers.common.documents import OUTSIDE_LINK, as_dict, as_list, is_inside_folder, member_text, parse_json, to_index
from stepscope.readers.common.problems import Problem

FILE = "profiler_metadata.json"
_MAX_RANKS = 1 << 20
_SIZES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "dp": "data_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "world_size": "world_size",
}


def group_number(name: str) -> int:
    """The number of a communicator in HCCL's files: two polynomial hashes of its name, of 32 bits each, with the bases 29 and 131."""
    high = low = 0
    for byte in name.encode():
        high, low = (high * 29 + byte) & 0xFFFFFFFF, (low * 131 + byte) & 0xFFFFFFFF
    return high << 32 | low


class Parallel(NamedTuple):
    """The groups and parallel sizes that a rank knows."""

    groups: dict[str, list[int]]  # communicator's name -> ranks of the job, in the order of the group
    numbers: dict[str, str]  # communicator's number -> its name
    sizes: dict[str, int]  # tp, pp, dp, cp, ep, world_size
    descriptions: dict[str, str] = {}  # communicator's name -> what the framework calls the group: dp, tp, pp, ...

    def group_of_call(self, group: str | None, call: str | None) -> str | None:
        """The communicator's name: from the group's name or number, else from the number's last three digits in the name of the call."""
        if group is not None:
            return self.numbers.get(group, group)
        if call is None:
            return None
        digits = call.rpartition("__")[2].partition("_")[0]
        names = [name for number, name in self.numbers.items() if "__" in call and number[-3:].lstrip("0") == digits.lstrip("0")]
        return names[0] if len(names) == 1 else None


def read(folder: Path, problems: list[Problem], metadata: Mapping[str, Any] | None = None) -> Parallel:
    """The groups in a result folder, or in the output folder in it. `metadata` has the entries of a database."""
    problems += [Problem(FILE, OUTSIDE_LINK, 1) for file in _places(folder) if file.is_symlink() and not is_inside_folder(file)]
    entries = [as_dict(read_json(file, problems)) for file in metadata_files(folder)]
    return parse(dict(metadata or {}) | (entries[0] if entries else {}), problems)


def metadata_files(folder: Path) -> list[Path]:
    """The file with the groups, in a result folder or in the output folder in it."""
    return [file for file in _places(folder) if is_inside_folder(file)][:1]


def _places(folder: Path) -> list[Path]:
    return [place / FILE for place in ((folder, folder.parent) if folder.name == "ASCEND_PROFILER_OUTPUT" else (folder,))]


def parse(metadata: Mapping[str, Any], problems: list[Problem]) -> Parallel:
    """From the two entries, each an object or the JSON text of one."""
    groups, descriptions, invalid = dict[str, list[int]](), dict[str, str](), 0
    for name, entry in _object(metadata.get("parallel_group_info")).items():
        try:
            ranks = [to_index(rank) for rank in as_list(as_dict(entry).get("global_ranks"))]
        except ValueError:
            ranks = []
        if ranks:
            groups[str(name)] = ranks
            descriptions[str(name)] = str(as_dict(entry).get("group_name") or "")
        invalid += not ranks
    report_lost(problems, FILE, invalid, "group", "without ranks")
    args, sizes = _object(metadata.get("distributed_args")), {}
    for short, long in _SIZES.items():
        size = args.get(long, args.get(short))
        if isinstance(size, int) and not isinstance(size, bool) and 0 < size <= _MAX_RANKS:
            sizes[short] = size
    return Parallel(groups, {str(group_number(name)): name for name in groups}, sizes, descriptions)


def _object(entry: Any) -> dict[str, Any]:
    if isinstance(entry, str):
        try:
            entry = parse_json(entry.encode())
        except (ValueError, RecursionError):
            return {}
    return as_dict(entry)


def add_groups(trace: Trace, parallel: Parallel, matrix_links: pl.DataFrame | None = None) -> Trace:
    """The trace of one rank with global ranks instead of ranks within a group: in its links, and in the args of its calls.

    `matrix_links` are more links, which have their group in a column.
    """
    calls = trace.spans.filter(pl.col("kind") == "communication").select("span", pl.col("name").cast(pl.String), "args").collect()
    calls = calls.select("span", "name", in_args=pl.col("args").str.json_path_match("$['Process Group Name']"))
    distinct = calls.select("in_args", "name").unique()
    names = pl.Series("group", [parallel.group_of_call(group, call) for group, call in distinct.iter_rows()], pl.String)
    calls = calls.join(distinct.with_columns(names), on=["in_args", "name"], how="left", nulls_equal=True)
    trace = add_args(trace, _group_args(calls, parallel))
    links = trace.table("links").with_columns(pl.col("op").cast(pl.String)).collect()
    groups = calls.select(op="name", group="group").drop_nulls().unique("op", keep="first")
    links = links.join(groups, on="op", how="left", maintain_order="left")
    if matrix_links is not None and matrix_links.height:
        names = pl.Series("group", [parallel.group_of_call(group, "") for group in matrix_links["group"]], pl.String)
        links = pl.concat([links, matrix_links.with_columns(names, rank=pl.lit(trace.meta.ranks[0]))], how="diagonal_relaxed")
    return _with_global_ranks(_with_sizes(trace, links, parallel), links, parallel)


def _group_args(calls: pl.DataFrame, parallel: Parallel) -> pl.DataFrame:
    """span, added: JSON text of the ranks of the call's group, and of the group's name if the args of the call lack it."""
    texts = [
        (group, unnamed, json.dumps(({"Process Group Name": group} if unnamed else {}) | {"Process Group Ranks": ranks}))
        for group, ranks in parallel.groups.items()
        for unnamed in (False, True)
    ]
    rows = pl.DataFrame(texts, {"group": pl.String, "unnamed": pl.Boolean, "added": pl.String}, orient="row")
    return calls.with_columns(unnamed=pl.col("in_args").is_null()).join(rows, on=["group", "unnamed"]).select("span", "added")


def _with_sizes(trace: Trace, links: pl.DataFrame, parallel: Parallel) -> Trace:
    """The trace with the parallel sizes and the number of ranks: as listed, or from the highest rank in groups and links."""
    ranks = [rank for members in parallel.groups.values() for rank in members]
    ranks += [rank for end in ("src", "dst") for rank in links[end].drop_nulls().unique()]
    counts = [rank + 1 for rank in ranks if rank < _MAX_RANKS]  # a damaged file may contain any number
    world = parallel.sizes.get("world_size", max([trace.meta.ranks[0] + 1, *counts]) if max(counts, default=0) > 1 else None)
    sizes = {name: size for name, size in parallel.sizes.items() if name != "world_size"}
    extra = trace.meta.extra | ({"parallel": sizes} if sizes else {})
    return _with_groups(trace, parallel).with_meta(extra=extra, world_size=max(world or 0, trace.meta.world_size or 0) or None)


def _with_groups(trace: Trace, parallel: Parallel) -> Trace:
    """The trace with a row of `process_groups` for each group."""
    rank = trace.meta.ranks[0]
    rows = [(rank, name, parallel.descriptions.get(name) or None, member_text(ranks)) for name, ranks in parallel.groups.items()]
    if not rows:
        return trace
    columns = {name: schema.TABLES["process_groups"][name] for name in ("rank", "group", "description", "members")}
    return trace.with_tables(process_groups=pl.DataFrame(rows, columns, orient="row"))


def _with_global_ranks(trace: Trace, links: pl.DataFrame, parallel: Parallel) -> Trace:
    rank = trace.meta.ranks[0]
    members = [(group, local, number) for group, ranks in parallel.groups.items() for local, number in enumerate(ranks)]
    table = pl.DataFrame(members, {"group": pl.String, "local": pl.Int32, "global": pl.Int32}, orient="row")
    for end in ("src", "dst"):
        ends = table.rename({"local": end, "global": f"global_{end}"})
        links = links.with_columns(pl.col(end).cast(pl.Int32)).join(ends, on=["group", end], how="left", maintain_order="left")
    listed = pl.col("group").is_in(list(parallel.groups)).fill_null(False)
    # A transfer of this rank has this rank at one end. Otherwise its ranks are numbered within a group that is not listed.
    foreign = ~listed & (pl.col("src") != rank) & (pl.col("dst") != rank)
    links = links.with_columns(pl.when(listed).then(f"global_{end}").when(~foreign).then(end).alias(end) for end in ("src", "dst"))
    unknown = links.select(pl.any_horizontal(pl.col("src", "dst").is_null()).sum()).item()
    if links.height == trace.table("links").select(pl.len()).collect().item() and not (parallel.groups or unknown):
        return trace
    tables = trace.tables
    tables["links"] = schema.conform(links.lazy(), "links")
    if unknown:
        transfers = units.count(unknown, "transfer has", "transfers have")
        text = f"{transfers} ranks within a group that {FILE} does not list: the global ranks are unknown"
        row = pl.DataFrame({"rank": [rank], "where": ["communication"], "what": [text], "lost": [0]})
        tables["problems"] = pl.concat([tables["problems"], schema.conform(row.lazy(), "problems")])
    return Trace(tables, trace.meta)
