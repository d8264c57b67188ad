"""Groups of ranks on Ascend: which ranks of the job a communicator has, and how the job is parallel.

profiler_metadata.json, and the table META_DATA of databases, say it per rank:

    parallel_group_info     the communicator's name -> group_name, group_rank (of this rank), global_ranks
    distributed_args        tensor_model_parallel_size, pipeline_model_parallel_size, data_parallel_size, ..., world_size

Tasks of HCCL count ranks within their group. Names of calls (`hcom_allReduce__586_0_1`), communication.json and analysis.db have a number
in place of the communicator's name.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import polars as pl

from stepscope import schema, units
from stepscope.readers._ascend_tables import read_json, with_args
from stepscope.readers._documents import LEADS_OUT, decoded, index, lies_beside, listed, mapped
from stepscope.readers._kineto import Problem
from stepscope.trace import Trace

FILE = "profiler_metadata.json"
_MOST = 1 << 20  # ranks of a job
_SIZES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "dp": "data_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
}


def group_number(name: str) -> int:
    """The number of a communicator in HCCL's files: two polynomial hashes of its name, of 32 bits each, with the bases 29 and 131."""
    high = low = 0
    for byte in name.encode():
        high, low = (high * 29 + byte) & 0xFFFFFFFF, (low * 131 + byte) & 0xFFFFFFFF
    return high << 32 | low


class Parallel(NamedTuple):
    """What a rank knows of its job."""

    groups: dict[str, list[int]]  # by the communicator's name: ranks of the job, in the order of the group
    numbers: dict[str, str]  # of communicators: their names
    sizes: dict[str, int]  # tp, pp, dp, cp, ep, world_size

    def group(self, said: str | None, call: str | None) -> str | None:
        """The communicator of a call: as said, or by the last three digits of its number, which the call's name holds."""
        if said is not None:
            return self.numbers.get(said, said)
        if call is None:
            return None
        digits = call.rpartition("__")[2].partition("_")[0]
        near = [name for number, name in self.numbers.items() if "__" in call and number[-3:].lstrip("0") == digits.lstrip("0")]
        return near[0] if len(near) == 1 else None


def read(folder: Path, problems: list[Problem], beside: Mapping[str, Any] | None = None) -> Parallel:
    """Of a result folder, or of the output folder in it; `beside` has the entries of a database."""
    places = [place / FILE for place in ((folder, folder.parent) if folder.name == "ASCEND_PROFILER_OUTPUT" else (folder,))]
    problems += [Problem(FILE, LEADS_OUT, 1) for file in places if file.is_symlink() and not lies_beside(file)]
    found = described(folder)
    said = read_json(found[0], problems) if found else None
    return parse(dict(beside or {}) | (said if isinstance(said, dict) else {}), problems)


def described(folder: Path) -> list[Path]:
    """The file that describes the job, in a result folder or in the output folder in it."""
    places = (folder, folder.parent) if folder.name == "ASCEND_PROFILER_OUTPUT" else (folder,)
    return [place / FILE for place in places if lies_beside(place / FILE)][:1]


def parse(said: Mapping[str, Any], problems: list[Problem]) -> Parallel:
    """Of the two entries, each an object or the JSON text of one."""
    groups, odd = dict[str, list[int]](), 0
    for name, about in _object(said.get("parallel_group_info")).items():
        try:
            ranks = [index(rank) for rank in listed(mapped(about).get("global_ranks"))]
        except ValueError:
            ranks = []
        if ranks:
            groups[str(name)] = ranks
        odd += not ranks
    if odd:
        problems.append(Problem(FILE, f"{units.count(odd, 'group')} without their ranks", odd))
    told, sizes = _object(said.get("distributed_args")), {}
    for short, long in (*_SIZES.items(), ("world_size", "world_size")):
        size = told.get(long, told.get(short))
        if isinstance(size, int) and not isinstance(size, bool) and 0 < size <= _MOST:
            sizes[short] = size
    return Parallel(groups, {str(group_number(name)): name for name in groups}, sizes)


def _object(said: Any) -> dict[str, Any]:
    if isinstance(said, str):
        try:
            said = decoded(said.encode())
        except (ValueError, RecursionError):
            return {}
    return mapped(said)


def with_groups(trace: Trace, parallel: Parallel, more_links: pl.DataFrame | None = None) -> Trace:
    """The trace of one rank with ranks of the job in place of those within a group: on its links, and beside its calls.

    `more_links` are links that know their group themselves.
    """
    calls = trace.spans.filter(pl.col("kind") == "communication").select("span", pl.col("name").cast(pl.String), "args").collect()
    calls = calls.select("span", "name", said=pl.col("args").str.json_path_match("$['Process Group Name']"))
    distinct = calls.select("said", "name").unique()
    groups = pl.Series("group", [parallel.group(said, call) for said, call in distinct.iter_rows()], pl.String)
    calls = calls.join(distinct.with_columns(groups), on=["said", "name"], how="left", nulls_equal=True)
    trace = with_args(trace, _described(calls, parallel))
    links = trace.table("links").collect()
    of_calls = calls.select(op="name", group="group").drop_nulls().unique("op", keep="first")
    links = links.with_columns(pl.col("op").cast(pl.String)).join(of_calls, on="op", how="left", maintain_order="left")
    if more_links is not None and more_links.height:
        named = pl.Series("group", [parallel.group(group, "") for group in more_links["group"]], pl.String)
        links = pl.concat([links, more_links.with_columns(named, rank=pl.lit(trace.meta.ranks[0]))], how="diagonal_relaxed")
    return _with_job(trace, links, parallel)


def _described(calls: pl.DataFrame, parallel: Parallel) -> pl.DataFrame:
    """span, more: JSON text of the ranks of the call's group, and of the group's name where the call does not have it yet."""
    texts = [
        (group, unnamed, json.dumps(({"Process Group Name": group} if unnamed else {}) | {"Process Group Ranks": ranks}))
        for group, ranks in parallel.groups.items()
        for unnamed in (False, True)
    ]
    rows = pl.DataFrame(texts, {"group": pl.String, "unnamed": pl.Boolean, "more": pl.String}, orient="row")
    return calls.with_columns(unnamed=pl.col("said").is_null()).join(rows, on=["group", "unnamed"]).select("span", "more")


def _with_job(trace: Trace, links: pl.DataFrame, parallel: Parallel) -> Trace:
    rank = trace.meta.ranks[0]
    members = [(group, local, one) for group, ranks in parallel.groups.items() for local, one in enumerate(ranks)]
    ranks = pl.DataFrame(members, {"group": pl.String, "local": pl.Int32, "global": pl.Int32}, orient="row")
    for end in ("src", "dst"):
        ends = ranks.rename({"local": end, "global": f"{end}_of_job"})
        links = links.with_columns(pl.col(end).cast(pl.Int32)).join(ends, on=["group", end], how="left", maintain_order="left")
    known = pl.col("group").is_in(list(parallel.groups)).fill_null(False)
    # A transfer of this rank has this rank at one end: else its ranks are counted within a group that is not listed.
    foreign = ~known & (pl.col("src") != rank) & (pl.col("dst") != rank)
    seen = [one for ranks in parallel.groups.values() for one in ranks]
    seen += [one for end in ("src", "dst") for one in links[end].drop_nulls().unique()]
    believable = [one + 1 for one in seen if one < _MOST]  # damage leaves any number
    world = parallel.sizes.get("world_size", max([rank + 1, *believable]) if max(believable, default=0) > 1 else None)
    links = links.with_columns(pl.when(known).then(f"{end}_of_job").when(~foreign).then(end).alias(end) for end in ("src", "dst"))
    unknown = links.select(pl.any_horizontal(pl.col("src", "dst").is_null()).sum()).item()
    sizes = {name: size for name, size in parallel.sizes.items() if name != "world_size"}
    extra = trace.meta.extra | ({"parallel": sizes} if sizes else {})
    trace.meta = msgspec.structs.replace(trace.meta, extra=extra, world_size=max(world or 0, trace.meta.world_size or 0) or None)
    if links.height == trace.table("links").select(pl.len()).collect().item() and not (parallel.groups or unknown):
        return trace  # as it is
    tables = trace.tables
    tables["links"] = schema.conform(links.lazy(), "links")
    if unknown:
        who = units.count(unknown, "transfer counts", "transfers count")
        what = f"{who} ranks within a group that {FILE} does not list: between which ranks is not known"
        row = pl.DataFrame({"rank": [rank], "where": ["communication"], "what": [what], "lost": [0]})
        tables["problems"] = pl.concat([tables["problems"], schema.conform(row.lazy(), "problems")])
    return Trace(tables, trace.meta)
