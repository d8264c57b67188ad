"""The tables of a summary: figures of each rank that analyses read in place of its spans."""

from typing import TYPE_CHECKING, Any

import polars as pl

from stepscope.errors import SummaryError

if TYPE_CHECKING:
    from stepscope.model.trace import Trace

TABLES: dict[str, dict[str, Any]] = {
    # Summary of ranks: a rank.
    "rank_figures": {
        "rank": pl.Int32,
        "source": pl.String,  # the recording of the rank
        "spans": pl.Int64,  # in the recording
        "first_ns": pl.Int64,
        "last_ns": pl.Int64,
        "device_data": pl.String,  # complete, partial, none or host, as in `overview`; null if unknown
        "device_clock": pl.Float64,  # mean of the samples within the steps
        "peak_memory_bytes": pl.Int64,
        "copies_unknown": pl.Boolean,  # the source has only operators and transfers
    },
    # Summary of ranks: a kind of span.
    "rank_kinds": {
        "rank": pl.Int32,
        "kind": pl.String,
        "spans": pl.Int64,  # in the recording
    },
    # Summary of ranks: a step, and whether its device work is completely recorded.
    "rank_coverage": {
        "rank": pl.Int32,
        "step": pl.Int32,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "complete": pl.Boolean,
        "launched": pl.Boolean,  # all work that the step launched is recorded, if not all that ran in it
        "transfers": pl.Boolean,  # transfers are recorded apart from kernels
        "launches": pl.Int64,  # launch calls; null if these are not recorded
        "lost_launches": pl.Int64,  # launch calls without recorded work
    },
    # Summary of ranks: a completely recorded step, and the time that the rank needs for itself.
    "rank_steps": {
        "rank": pl.Int32,
        "step": pl.Int32,
        "total_ns": pl.Int64,
        "own_ns": pl.Int64,  # the step without exposed communication: what this rank needs, without waits for others
        "compute_ns": pl.Int64,  # kernels; on a rank without a device operators of the host, outside of waits for input
        "input_ns": pl.Int64,  # waits for input
        "collection_ns": pl.Int64,  # Python's garbage collector
        "host_ns": pl.Int64,  # the rest
        "work": pl.Int64,  # number of kernels or operators; null if unknown
    },
    # Summary of ranks: the row of a step in `overlap`.
    "rank_overlap": {
        "rank": pl.Int32,
        "step": pl.Int32,
        "total_ns": pl.Int64,
        "device_ns": pl.Int64,
        "computing_ns": pl.Int64,
        "communication_ns": pl.Int64,
        "overlapped_ns": pl.Int64,
        "exposed_ns": pl.Int64,
        "device_exposed_ns": pl.Int64,
        "copy_ns": pl.Int64,
        "free_ns": pl.Int64,
        "complete": pl.Boolean,
        "host_exposed_ns": pl.Int64,
        "clock": pl.String,
    },
    # Summary of ranks: the row of a step in `step_trace`.
    "rank_step_trace": {
        "rank": pl.Int32,
        "step": pl.Int32,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "total_ns": pl.Int64,
        "interval_ns": pl.Int64,
        "fp_bp_ns": pl.Int64,
        "tail_ns": pl.Int64,
        "gap_ns": pl.Int64,
        "fp_start_ns": pl.Int64,
        "bp_end_ns": pl.Int64,
        "fp_start_op": pl.String,
        "bp_end_op": pl.String,
        "clock": pl.String,
        "how": pl.String,
        "found": pl.String,
    },
    # Summary of ranks: waits for input and floating-point operations of a step.
    "rank_usage": {
        "rank": pl.Int32,
        "step": pl.Int32,
        "input_wait_ns": pl.Int64,  # of the thread that runs the steps; null if the input is not recorded
        "flops": pl.Int64,  # of the calls that `flops` can count
        "chip_ns": pl.Float64,  # that the chip would need for them at its dense peaks
        "chip_calls": pl.Int64,  # calls on the chip
        "chip_unknown": pl.Int64,  # calls on the chip without a known peak
    },
    # Summary of ranks: a communication call.
    "rank_collectives": {
        "rank": pl.Int32,
        "span": pl.Int64,
        "step": pl.Int32,
        "name": pl.String,
        "collective": pl.String,  # all_reduce, send, ...; null if not known
        "group": pl.String,
        "members": pl.String,  # ranks of the group, as the source lists them
        "group_size": pl.Int64,
        "sequence": pl.Int64,  # counts the calls of the group; null if not recorded
        "src": pl.Int32,  # of a receive
        "dst": pl.Int32,  # of a send
        "partner": pl.Int32,  # the only other rank in the links of the call
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "bytes": pl.Int64,
        "transit_ns": pl.Int64,  # as recorded; with wait_ns and idle_ns, the parts of the call
        "wait_ns": pl.Int64,
        "idle_ns": pl.Int64,
        "overlapped_ns": pl.Int64,  # while the rank computes, by its recorded work
        "has_times": pl.Boolean,  # false: the call has a duration, but no timestamps
    },
    # Summary of ranks: transfers of a step between two ranks.
    "rank_links": {
        "rank": pl.Int32,
        "step": pl.Int32,
        "src": pl.Int32,
        "dst": pl.Int32,
        "transport": pl.String,
        "transfers": pl.Int64,
        "bytes": pl.Int64,
        "dur_ns": pl.Int64,
        "sized_bytes": pl.Int64,  # of transfers with known bytes and time
        "sized_ns": pl.Int64,
        "moved_bytes": pl.Int64,  # of transfers with bytes and time above 0
        "moved_ns": pl.Int64,
    },
    # Summary of ranks: the longest span of a step by the cause of a slow step that it shows.
    "rank_longest_spans": {
        "rank": pl.Int32,
        "step": pl.Int32,
        "cause": pl.String,  # compute, input, garbage_collection
        "span": pl.Int64,
        "dur_ns": pl.Int64,
    },
    # Summary of ranks: the time of an operation of a pipeline stage, a row of `stage_operations`.
    "rank_operations": {
        "rank": pl.Int32,
        "span": pl.Int64,
        "step": pl.Int32,
        "start_ns": pl.Int64,
        "dur_ns": pl.Int64,
    },
    # Summary of ranks: a row of `operator_types`.
    "rank_operator_types": {
        "rank": pl.Int32,
        "device": pl.String,
        "type": pl.String,
        "calls": pl.Int64,
        "calls_of": pl.String,
        "total_ns": pl.Int64,
        "self_ns": pl.Int64,
        "avg_ns": pl.Float64,
        "min_ns": pl.Int64,
        "max_ns": pl.Int64,
        "share": pl.Float64,
        "device_steps": pl.Int64,
    },
    # Summary of ranks: a row of `memory_peaks`.
    "rank_memory_peaks": {
        "rank": pl.Int32,
        "device": pl.String,
        "step": pl.Int32,
        "peak_bytes": pl.Int64,
        "peak_ns": pl.Int64,
        "op": pl.String,
        "scope": pl.String,
        "reserved_bytes": pl.Int64,
        "static_bytes": pl.Int64,
        "growth_bytes": pl.Int64,
    },
}

# The other tables of a summary: small ones, as the recordings have them.
KEPT = (
    *("steps", "tracks", "devices", "hosts", "pipeline", "models", "stage_operations", "sharded_operators"),
    *("process_groups", "flight_records", "problems"),
)

# What a summary answers: analyses of all ranks, and those with a table above.
_TOPICS = ("cluster", "communication", "hangs", "parallelism", "verdict")
_ANALYSES = ("overview", "overlap", "step_trace", "step_times", "recording_overhead", "operator_types", "memory_peaks")
_OF_SPANS = ("reduces", "reduces_per_step")


def is_answered(analysis: str, topic: str) -> bool:
    """Whether a summary has what an analysis needs; other analyses need spans, counters or allocations."""
    return (topic in _TOPICS and analysis not in _OF_SPANS) or analysis in _ANALYSES


def stored_rows(trace: "Trace", table: str) -> pl.DataFrame | None:
    """The rows of a table of a summary; None where the trace is no summary, so that they come from its spans."""
    if not trace.meta.summary:
        return None
    if trace.is_part_of_steps and "step" not in TABLES[table]:
        raise SummaryError(
            f"{trace.meta.source} is a summary: it has these figures of all steps together: open the recordings for some steps"
        )
    rows: pl.DataFrame = trace.table(table).collect()
    return rows


def refuse_summary(trace: "Trace", request: str) -> None:
    """Raise an error for what a summary cannot answer."""
    if trace.meta.summary:
        raise SummaryError(f"{trace.meta.source} is a summary, which has no {request}: open the recording of a rank")
