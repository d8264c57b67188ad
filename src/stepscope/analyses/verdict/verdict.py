"""What do the figures amount to, in one sentence per conclusion?"""

import json
from collections.abc import Callable, Iterator

import polars as pl

from stepscope.analyses.verdict.topics.cluster import cluster_messages
from stepscope.analyses.verdict.topics.communication import communication_messages
from stepscope.analyses.verdict.topics.flops import flop_messages
from stepscope.analyses.verdict.topics.hangs import hang_messages
from stepscope.analyses.verdict.topics.host import host_messages
from stepscope.analyses.verdict.topics.input import input_messages
from stepscope.analyses.verdict.topics.kernels import kernel_messages
from stepscope.analyses.verdict.topics.memory import memory_messages
from stepscope.analyses.verdict.topics.message import Message, Options
from stepscope.analyses.verdict.topics.operators import operator_messages
from stepscope.analyses.verdict.topics.overview import overview_messages
from stepscope.analyses.verdict.topics.problems import problem_messages
from stepscope.analyses.verdict.topics.steps import step_messages
from stepscope.model.parameters import check_word
from stepscope.model.strings.messages import render
from stepscope.model.trace import Trace

COLUMNS = {
    # overview, steps, operators, kernels, flops, memory, communication, cluster, input (data preparation), host (CPU), hangs, problems
    "topic": pl.String,
    "rank": pl.Int32,  # null: of the whole run
    "step": pl.Int32,  # null: of all steps
    "device": pl.String,  # operators: as in `operators`; memory: as in `memory`; null: of all
    "position": pl.Int32,  # within topic and rank; the headline has 0
    "severity": pl.String,  # info, low, medium, high; null for a statement
    "code": pl.String,
    "parameters": pl.String,  # a JSON object: times in ns, shares from 0 to 1, a range over ranks as [low, high]
    "coverage": pl.String,  # the steps or ranks that the figures cover; null: all
    "text": pl.String,  # the sentence in English
}
_TOPICS: dict[str, Callable[[Trace, Options], Iterator[Message]]] = {
    "overview": overview_messages,
    "steps": step_messages,
    "operators": operator_messages,
    "kernels": kernel_messages,
    "flops": flop_messages,
    "memory": memory_messages,
    "communication": communication_messages,
    "cluster": cluster_messages,
    "input": input_messages,
    "host": host_messages,
    "hangs": hang_messages,
    "problems": problem_messages,
}
_OF_SPANS = ("operators", "kernels", "flops", "host")  # topics for which a summary of ranks has no data


def verdict(
    trace: Trace,
    *,
    topic: str | None = None,
    per_step: bool = False,
    warmup: int | None = None,
    fp_start: str | None = None,
    bp_end: str | None = None,
    clock: str = "host",
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> pl.DataFrame:
    """Per topic and rank, the headline first: a code with its parameters, and the sentence that page, terminal and report show.

    `topic` restricts the rows to one topic. A run of several ranks also has rows of the whole run, with a null rank, before those of
    the ranks; communication, cluster, hangs and problems have only these. Operators and memory have a headline for each device, the
    main one first.
    With `per_step` the topic `steps` has rows for each step, too. `warmup` as in `overview`, `fp_start`, `bp_end` and `clock` as in
    `step_trace`, `start_ns` and `end_ns` as in `cpu_use`.
    """
    topics = list(_TOPICS) if topic is None else [check_word("topic", topic, _TOPICS)]
    topics = [name for name in topics if not (trace.meta.summary and name in _OF_SPANS)]
    options = Options(per_step, warmup, {"fp_start": fp_start, "bp_end": bp_end, "clock": clock}, {"start_ns": start_ns, "end_ns": end_ns})
    messages = [message for name in topics for message in _TOPICS[name](trace, options)]
    rows = {
        name: [getattr(message, name) for message in messages]
        for name in ("topic", "code", "rank", "severity", "coverage", "step", "device")
    }
    rows["parameters"] = [json.dumps(message.parameters, ensure_ascii=False) for message in messages]
    rows["text"] = [render(message.code, message.parameters) for message in messages]
    return (
        pl.DataFrame(rows, {name: COLUMNS[name] for name in rows})
        .with_columns(position=pl.int_range(pl.len()).over("topic", "rank", "step"))
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )
