"""PyTorch's flight recorder: the last collectives of one rank, dumped when a job hangs (TORCH_FR_DUMP_TEMP_FILE), as pickle or JSON.

A dump does not contain its rank: the digits at the end of its name do. Of each group it has counts of the operations that were enqueued
and completed; `pg_config` and `pg_status` number the groups differently, in the same order.
"""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import DataError
from stepscope.model import schema
from stepscope.model.trace import Meta, Trace, complete
from stepscope.readers import Options
from stepscope.readers.ascend.common.tables import report_lost
from stepscope.readers.common.documents import as_dict, as_list, member_text, parse_json, to_index, to_int
from stepscope.readers.common.problems import Problem, problem_frame
from stepscope.readers.flight_recorder import plain_pickle

FORMAT = "PyTorch flight recorder"
_HEAD = 1 << 16
_KEYS = (b"pg_config", b"pg_status", b"entries")
_P2P = re.compile(r"(?:send|recv) \d+(?:->|<-)(\d+)$")
# Wrappers of the framework are not where the program calls a collective.
_FRAMEWORK = re.compile(r"(^|/)(torch|site-packages|dist-packages)/")


def sniff(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    pickled = head.startswith(b"\x80") and b"version" in head[:200]
    is_json = re.match(rb'\s*\{\s*"\w+"\s*:', head) is not None
    return (pickled and any(key in head for key in _KEYS)) or (is_json and b'"traceEvents"' not in head and _is_dump(head))


def _is_dump(head: bytes) -> bool:
    return b'"pg_config"' in head or b'"collective_seq_id"' in head or b'"pg_status"' in head


def rank(path: Path) -> int | None:
    """The digits at the end of the name: nccl_trace_rank_12, _dump_12, dump_12.json."""
    name = re.sub(r"\.(json|pkl|pickle)$", "", path.name)
    digits = re.search(r"\d{1,9}$", name)
    return int(digits[0]) if digits else None


def read(path: Path, options: Options) -> Trace:
    document = _document(path)
    dump_rank = rank(path) if options.rank is None else options.rank
    problems: list[Problem] = []
    if dump_rank is None:
        dump_rank = 0
        problems.append(Problem(path.name, "the name has no rank at its end, so it is shown as rank 0", 0))
    records = _records(as_list(document.get("entries")), problems)
    groups = _groups(document, records, problems)
    spans = _spans(records)
    tables = {
        "spans": spans,
        "tracks": _tracks(records, groups),
        "process_groups": groups,
        "flight_records": records,
        "problems": problem_frame(problems, path),
    }
    ranked = {name: frame.with_columns(rank=pl.lit(dump_rank, pl.Int32)) for name, frame in tables.items()}
    versions = {"flight recorder": str(document.get("version"))} if document.get("version") else {}
    for library in ("nccl", "hccl", "comm_lib"):
        if document.get(f"{library}_version"):
            versions[library] = str(document[f"{library}_version"])
    meta = Meta(format="flight_recorder", framework="pytorch", versions=versions, world_size=_world_size(groups), ranks=[dump_rank])
    return Trace(ranked, meta)


def _document(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    try:
        document = plain_pickle.load(data) if data.startswith(b"\x80") else parse_json(data)
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"not a dump of the flight recorder: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("entries", []), list):
        raise DataError(path, "not a dump of the flight recorder: expected its entries")
    if not document.keys() & {"entries", "pg_status", "pg_config"}:
        raise DataError(path, "not a dump of the flight recorder: it has neither entries nor groups")
    return document


def _records(entries: list[Any], problems: list[Problem]) -> pl.DataFrame:
    """The rows of `flight_records`, in order."""
    rows, invalid = [], 0
    for entry in entries:
        try:
            rows.append(_record(entry))
        except (KeyError, TypeError, ValueError, IndexError):
            invalid += 1
    report_lost(problems, "entries", invalid, "entry", "without a group, a number or a state")
    columns = {name: dtype for name, dtype in schema.TABLES["flight_records"].items() if name != "rank"}
    text = {name: pl.String if dtype == schema.Text else dtype for name, dtype in columns.items()}
    frame = pl.DataFrame(rows, {**text, "local": pl.Int64}, orient="row")
    return frame.with_columns(pl.col(name).cast(dtype) for name, dtype in columns.items()).sort("record", maintain_order=True)


def _record(entry: dict[str, Any]) -> tuple[Any, ...]:
    group = entry["process_group"]
    backend, _, name = str(entry["profiling_name"]).rpartition(":")
    peer = _P2P.search(name)
    is_p2p = entry.get("is_p2p")
    completed = entry["state"] == "completed" or entry.get("retired") is True
    frames = _frames(entry.get("frames"))
    return (
        to_int(entry.get("record_id", entry.get("id", 0))),
        str(group[0]),
        _number(entry.get("collective_seq_id", entry.get("seq_id"))),
        _number(entry.get("p2p_seq_id")),
        _number(entry.get("op_id")),
        bool(is_p2p) if is_p2p is not None else peer is not None,
        name.split(" ")[0],
        backend or None,
        to_index(peer[1]) if peer else None,
        "completed" if completed else str(entry["state"]),
        _time(entry.get("time_created_ns")),
        _time(entry.get("time_discovered_started_ns")),
        _time(entry.get("time_discovered_completed_ns")),
        *(_text(entry.get(f"{side}_{field}")) for side in ("input", "output") for field in ("sizes", "dtypes")),
        to_int(entry["timeout_ms"], 1_000_000) if entry.get("timeout_ms") is not None else None,
        " ".join(str(entry[key]) for key in ("thread_name", "thread_id") if entry.get(key)) or None,
        _line(frames),
        json.dumps(frames) if frames else None,
        _number(entry.get("pg_id")),
    )


def _number(value: Any) -> int | None:
    return None if value is None else to_int(value)


def _time(value: Any) -> int | None:
    """A time; JSON has 0 where a pickle has none."""
    return _number(value) or None


def _text(value: Any) -> str | None:
    """Shapes or types as JSON text; None where it is no list of texts, or of lists of numbers."""
    if not isinstance(value, list) or not value:
        return None
    plain = all(
        isinstance(part, str) or (isinstance(part, (list, tuple)) and all(isinstance(size, int) for size in part)) for part in value
    )
    return json.dumps([part if isinstance(part, str) else list(part) for part in value]) if plain else None


def _frames(value: Any) -> list[dict[str, Any]]:
    """The calls in Python around an operation, the innermost first."""
    frames = [frame for frame in as_list(value) if isinstance(frame, dict)]
    return [
        {"name": str(frame.get("name")), "file": str(frame.get("filename")), "line": line if isinstance(line, int) else None}
        for frame, line in ((frame, frame.get("line")) for frame in frames)
    ]


def _line(frames: list[dict[str, Any]]) -> str | None:
    chosen = next((frame for frame in frames if not _FRAMEWORK.search(frame["file"])), frames[0] if frames else None)
    return f"{chosen['file']}:{chosen['line']} {chosen['name']}" if chosen else None


def _groups(document: dict[str, Any], records: pl.DataFrame, problems: list[Problem]) -> pl.DataFrame:
    """The rows of `process_groups`: of the configuration, the entries and the counts, which have numbers of their own for the groups."""
    configured = {str(name): as_dict(group) for name, group in as_dict(document.get("pg_config")).items() if str(name)}
    entry_groups = {str(group[0]): str(group[1]) for group in _entry_groups(document)}
    status = as_dict(document.get("pg_status"))
    names = _names_of_counts(list(configured), list(status), records)
    if status and len(names) < len(status):
        problems.append(Problem("pg_status", "counts of groups whose names are unknown", len(status) - len(names)))
    counts = {name: as_dict(status[number]) for number, name in names.items()}
    rows = [
        (
            name,
            str(configured.get(name, {}).get("desc") or entry_groups.get(name, "")) or None,
            member_text(configured.get(name, {}).get("ranks")),
            *(_count(counts.get(name, {}), state) for state in ("enqueued", "started", "completed")),
        )
        for name in dict.fromkeys([*configured, *entry_groups, *names.values()])
    ]
    text = {"group": pl.String, "description": pl.String, "members": pl.String}
    frame = pl.DataFrame(rows, {**text, "enqueued": pl.Int64, "started": pl.Int64, "completed": pl.Int64}, orient="row")
    return frame.with_columns(pl.col("group", "description").cast(schema.Text))


def _entry_groups(document: dict[str, Any]) -> list[Any]:
    groups = [entry.get("process_group") for entry in as_list(document.get("entries")) if isinstance(entry, dict)]
    return [group for group in groups if isinstance(group, (list, tuple)) and len(group) == 2]


def _names_of_counts(configured: list[str], status: list[str], records: pl.DataFrame) -> dict[str, str]:
    """The name of the group of each count: from the entries, and by order where the configuration has as many groups."""
    known = {
        str(number): name for number, name in records.select("local", pl.col("group").cast(pl.String)).drop_nulls().unique().iter_rows()
    }
    numeric = all(text.isdecimal() for text in (*configured, *status))
    if numeric and len(configured) == len(status):
        by_order = dict(zip(sorted(status, key=int), sorted(configured, key=int), strict=True))
        if all(by_order.get(number) == name for number, name in known.items()):
            return by_order
    return {number: known[number] for number in status if number in known}


def _count(counts: dict[str, Any], state: str) -> int | None:
    """The number of the last operation; None where the recorder did not follow the state (-1)."""
    try:
        value = to_int(counts.get(f"last_{state}_collective"))
    except ValueError:
        return None
    return value if value >= 0 else None


def _world_size(groups: pl.DataFrame) -> int | None:
    """The number of ranks in the largest group: the default one has them all."""
    members = [len(text.split(",")) for text in groups["members"].drop_nulls()]
    return max(members, default=None)


def _spans(records: pl.DataFrame) -> pl.DataFrame:
    """An instant for each operation where its rank called it: the recorder polls, so durations are unknown."""
    called = records.filter(pl.col("created_ns").is_not_null()).sort("created_ns", maintain_order=True)
    tracks = pl.col("group").cast(pl.String).rank("dense").cast(pl.Int32) - 1
    return complete(
        called.select(
            name=pl.col("name").cast(pl.String),
            kind=pl.lit("instant"),
            category=pl.col("state").cast(pl.String),
            track=tracks,
            start_ns="created_ns",
            dur_ns=pl.lit(0, pl.Int64),
            shapes=pl.col("input_shapes").cast(pl.String),
            dtypes=pl.col("input_dtypes").cast(pl.String),
            args=pl.struct("record", "number", "state", "line").struct.json_encode(),
        )
    )


def _tracks(records: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    called = (
        records.filter(pl.col("created_ns").is_not_null()).select(group_name=pl.col("group").cast(pl.String)).unique().sort("group_name")
    )
    labels = dict(groups.select(pl.col("group").cast(pl.String), pl.col("description").cast(pl.String)).iter_rows())
    names = called["group_name"].to_list()
    return pl.DataFrame(
        {
            "track": range(len(names)),
            "group": ["Process groups"] * len(names),
            "label": [" ".join(filter(None, (labels.get(name), f"group {name}"))) for name in names],
            "kind": ["communication"] * len(names),
            "sort": range(len(names)),
            "pid": ["0"] * len(names),
            "tid": names,
            "communication_group": names,
        },
        schema_overrides={"track": pl.Int32, "sort": pl.Int32},
    )
