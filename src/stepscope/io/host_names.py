"""The machine that made a recording: from its metadata, or from its name."""

import re
from pathlib import Path

import polars as pl

from stepscope.model.trace import Trace

# HOST_PID.TIME.pt.trace.json of PyTorch, HOST_PID_TIME_ascend_pt of torch_npu and MindSpore, HOST.xplane.pb of JAX.
_NAME = re.compile(
    r"(?P<process>.+)_\d+(\.1\d{12}(\d{3}|\d{6})?\.pt\.trace\.json(\.gz)?|_20\d{15}_ascend_(pt|ms))|(?P<host>.+)\.xplane\.pb(\.gz)?"
)
_NO_HOST = re.compile(r"(rank|worker|proc|process|device|trace|profile)?[-_.\d]*", re.IGNORECASE)


def with_host(trace: Trace, path: Path) -> Trace:
    """The trace of one rank with its host, if it is known."""
    host = name if isinstance(name := trace.meta.extra.get("host"), str) and name else host_in_name(path)
    if host is None or len(trace.meta.ranks) != 1 or trace.table("hosts").head(1).collect().height:
        return trace
    return trace.with_tables(**hosts_table(trace.meta.ranks[0], host))


def hosts_table(rank: int, host: str) -> dict[str, pl.DataFrame]:
    return {"hosts": pl.DataFrame({"rank": [rank], "host": [host]}, {"rank": pl.Int32, "host": pl.Categorical()})}


def host_in_name(path: Path) -> str | None:
    """The host in the name of a recording; names that users chose are not hosts."""
    match = _NAME.fullmatch(path.name)
    name = (match["process"] or match["host"]) if match else None
    return None if name is None or _NO_HOST.fullmatch(name) else name
