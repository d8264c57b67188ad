"""Which ranks does a job that hangs wait for, and in which collective?"""

from collections.abc import Iterable

import polars as pl

from stepscope.analyses.shared.ranks.cycles import sink_groups
from stepscope.analyses.shared.ranks.waiting_ranks import (
    BEHIND,
    NO_DUMP,
    NO_PARTNER,
    NOT_CALLED,
    Waiting,
    members_behind,
    mismatches,
    waiting_ranks,
)
from stepscope.model.memo import memoized
from stepscope.model.trace import Trace

DEVICE_STOPPED, DEADLOCK, MISMATCH, TRANSFER = "device stopped", "deadlock", "mismatch", "transfer stopped"
COLUMNS = {
    "rank": pl.Int32,
    "role": pl.String,  # cause, waiting, no dump, clear (all that it called is completed, and no rank waits for it)
    "why": pl.String,  # of a cause: not called, no partner, device stopped, mismatch, deadlock, transfer stopped, no dump
    "group": pl.String,  # the collective in which the ranks wait for a cause, or in which a rank waits
    "description": pl.String,
    "operation": pl.String,
    "number": pl.Int64,  # of the collective in its group; null for a send or receive
    "line": pl.String,  # where the waiting ranks call it: file:line function
    "waiting": pl.Int64,  # of a cause: ranks that wait directly for it
    "waits_for": pl.String,  # ranks, separated by commas
    "pending": pl.Int64,  # operations that the rank called and that are not completed
    "last_operation": pl.String,  # the last call of the rank, with its time and line
    "last_ns": pl.Int64,  # since the first record of all ranks
    "last_line": pl.String,
}
_STRENGTH = {NOT_CALLED: 0, NO_DUMP: 1, NO_PARTNER: 2, BEHIND: 3}


@memoized
def hangs(trace: Trace) -> pl.DataFrame:
    """One row per rank of the job, from dumps of PyTorch's flight recorder.

    A rank waits for another that has not called the same collective, send or receive. A `cause` is waited for and waits for no rank: it
    is busy elsewhere on the host. Other causes: its device stopped (another member completed a collective that it did not), it left no
    dump, it called another operation than the others (mismatch), ranks that wait for each other (deadlock), or all members called a
    collective and none completed it (transfer stopped). Take the dumps after the job hangs: those of a running job differ by chance.
    """
    waiting = waiting_ranks(trace)
    if waiting.members.is_empty():
        return pl.DataFrame(schema=COLUMNS)
    causes = _causes(trace, waiting)
    heads = waiting.heads.unique("rank", keep="first", maintain_order=True)
    rows = (
        pl.DataFrame({"rank": waiting.ranks}, {"rank": pl.Int32})
        .join(causes, on="rank", how="left")
        .join(heads.select("rank", own_group="group", own_name="name", own_number="number", own_line="line"), on="rank", how="left")
        .join(waiting.pending, on="rank", how="left")
        .join(_awaited_ranks(waiting), on="rank", how="left")
        .join(_last_calls(trace), on="rank", how="left")
    )
    is_cause, has_dump = pl.col("why").is_not_null(), pl.col("rank").is_in(waiting.dumped)
    role = (
        pl.when(is_cause)
        .then(pl.lit("cause"))
        .when(~has_dump)
        .then(pl.lit("no dump"))
        .when(pl.col("pending") > 0)
        .then(pl.lit("waiting"))
        .otherwise(pl.lit("clear"))
    )
    shown = {name: pl.when(is_cause).then(name).otherwise(f"own_{name}") for name in ("group", "name", "number", "line")}
    descriptions = (
        trace.whole.table("process_groups").select(pl.col("group", "description").cast(pl.String)).drop_nulls().unique("group").collect()
    )
    shown_ranks = waiting.ranks if trace.whole is trace else trace.meta.ranks
    return (
        rows.filter(pl.col("rank").is_in(shown_ranks))
        .with_columns(role=role, **shown)
        .rename({"name": "operation"})
        .join(descriptions, on="group", how="left")
        .with_columns(pl.col("pending").fill_null(0), waits_for=pl.when(~is_cause | (pl.col("why") == DEADLOCK)).then("waits_for"))
        .sort("rank")
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _causes(trace: Trace, waiting: Waiting) -> pl.DataFrame:
    """Rank, why, and the operation in which others wait for it: group, name, number, line, waiting."""
    stopped = dict.fromkeys(waiting.stopped["rank"], DEVICE_STOPPED)
    different = mismatches(waiting.heads)
    causes: dict[int, str] = dict.fromkeys(different["rank"], MISMATCH) | stopped
    by_rank = _reasons(waiting, set(causes))
    new: dict[int, str] = {}
    for _ in waiting.ranks:  # each round adds the edges of a rank
        sinks = sink_groups({rank: set(awaited) for rank, awaited in by_rank.items()})
        # The host of a rank may be blocked by an operation that all called and others cannot complete yet.
        held = {
            ranks[0]: behind
            for ranks in sinks
            if len(ranks) == 1 and ranks[0] not in causes and (behind := members_behind(waiting, ranks[0]))
        }
        if not held:
            break
        for rank, behind in held.items():
            by_rank[rank] = dict.fromkeys(behind, BEHIND)
    for ranks in sink_groups({rank: set(awaited) for rank, awaited in by_rank.items()}):
        new |= _of_sink(ranks, by_rank)
    causes = new | causes
    if not causes:
        causes = dict.fromkeys(_in_transfer(waiting), TRANSFER)
    return _with_operations(causes, waiting)


def _reasons(waiting: Waiting, causes: set[int]) -> dict[int, dict[int, str]]:
    """By rank and awaited rank: the strongest reason. Known causes wait for no rank."""
    edges = waiting.edges.filter(~pl.col("rank").is_in(list(causes)))
    by_strength = edges.sort(pl.col("why").replace_strict(_STRENGTH, return_dtype=pl.Int8), maintain_order=True)
    by_rank: dict[int, dict[int, str]] = {}
    for rank, awaited, why in by_strength.select("rank", "awaited", "why").iter_rows():
        by_rank.setdefault(rank, {}).setdefault(awaited, why)
    return by_rank


def _of_sink(ranks: list[int], by_rank: dict[int, dict[int, str]]) -> dict[int, str]:
    """Why the others wait for these ranks, which wait for no other rank than each other."""
    reasons = {rank: [awaited[rank] for awaited in by_rank.values() if rank in awaited] for rank in ranks}
    if len(ranks) == 1:
        return {ranks[0]: min(reasons[ranks[0]], key=_STRENGTH.__getitem__)}
    # A receive may be called long before it is needed: a rank that has not called a collective either does not wait for it.
    held = {rank for rank in ranks if any(why in (NOT_CALLED, NO_DUMP) for awaited, why in by_rank[rank].items() if awaited in ranks)}
    late = [rank for rank in ranks if rank not in held and NOT_CALLED in reasons[rank]]
    free = [rank for rank in late if BEHIND not in by_rank[rank].values()]
    late = free or late
    return dict.fromkeys(late, NOT_CALLED) if late else dict.fromkeys(ranks, DEADLOCK)


def _in_transfer(waiting: Waiting) -> Iterable[int]:
    """The members of the groups whose first pending operation all of them called and none completed, the oldest one."""
    first = waiting.heads.unique("rank", keep="first", maintain_order=True)
    oldest = first.sort("created_ns", nulls_last=True).head(1)
    if oldest.is_empty():
        return []
    if oldest["is_p2p"][0]:
        return [rank for rank in (oldest["rank"][0], oldest["peer_rank"][0]) if rank is not None]
    same = waiting.heads.join(oldest.select("group", "number"), on=["group", "number"])
    members = waiting.members.join(oldest.select("group"), on="group")
    return sorted(same["rank"]) if same.height == members.height else []  # else it is unknown what a member did


def _with_operations(causes: dict[int, str], waiting: Waiting) -> pl.DataFrame:
    edges = waiting.edges.join(waiting.heads.select("rank", "group", "record", "name", "line"), on=["rank", "group", "record"])
    stopped = waiting.stopped.join(
        waiting.heads.select("rank", "group", "number", "record", "name", "line"), on=["rank", "group", "number"]
    ).with_columns(awaited="rank")
    heads = waiting.heads.with_columns(awaited="rank")
    rows = []
    for rank, why in causes.items():
        source = stopped if why == DEVICE_STOPPED else heads if why in (MISMATCH, TRANSFER) else edges.filter(pl.col("why") == why)
        of_rank = source.filter(pl.col("awaited") == rank)
        if of_rank.is_empty():
            of_rank = edges.filter(pl.col("awaited") == rank)
        waits = waiting.edges.filter(pl.col("awaited") == rank)["rank"].n_unique()
        # The operation in which most ranks wait; of several, the first one that a rank called.
        most = (
            of_rank.group_by("group", "number", "name")
            .agg(pl.len(), pl.col("record").min(), pl.col("line").drop_nulls().mode().sort().first())
            .sort("len", "record", "group", descending=[True, False, False])
        )
        group, number, name, _, _, line = most.row(0) if most.height else (None,) * 6
        rows.append((rank, why, group, name, number, line, waits))
    types = {
        "rank": pl.Int32,
        "why": pl.String,
        "group": pl.String,
        "name": pl.String,
        "number": pl.Int64,
        "line": pl.String,
        "waiting": pl.Int64,
    }
    return pl.DataFrame(rows, types, orient="row")


def _awaited_ranks(waiting: Waiting) -> pl.DataFrame:
    awaited = waiting.edges.select("rank", "awaited").unique().sort("rank", "awaited")
    return awaited.group_by("rank").agg(waits_for=pl.col("awaited").cast(pl.String).str.join(","))


def _last_calls(trace: Trace) -> pl.DataFrame:
    records = trace.whole.table("flight_records").with_columns(pl.col("created_ns") - pl.col("created_ns").min())
    last = records.sort("record").group_by("rank").agg(pl.col("name", "created_ns", "line").last())
    return last.select(
        "rank", last_operation=pl.col("name").cast(pl.String), last_ns="created_ns", last_line=pl.col("line").cast(pl.String)
    ).collect()
