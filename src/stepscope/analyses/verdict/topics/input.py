"""Input: whether the steps wait for data, and which part of the pipeline is too slow."""

from collections.abc import Iterator
from typing import Any

from stepscope.analyses.input.data_pipeline import data_pipeline
from stepscope.analyses.input.data_queues import data_queues
from stepscope.analyses.steps.overview import overview
from stepscope.analyses.verdict.topics.message import MATTERS, Message, Options, known, severity
from stepscope.model.trace import Trace

_READ = ("device", "iterator", "device queue")  # the queue that the training reads: on the device if there is one
_OFTEN = 0.2  # of the batches
_FULL = 0.5  # of a queue

_Row = dict[str, Any]


def input_messages(trace: Trace, options: Options) -> Iterator[Message]:
    """Per rank: the headline, the state of each queue, and the three rules for queues."""
    steps = {row["rank"]: row for row in overview(trace, warmup=options.warmup).to_dicts()}
    queues, pipeline = data_queues(trace, per_step=False).to_dicts(), data_pipeline(trace).to_dicts()
    ranks = sorted({*steps, *(row["rank"] for row in queues + pipeline)})
    if not ranks:
        yield Message("input", "input-unknown", {})
    for rank in ranks:
        share, wait = (steps[rank][name] if rank in steps else None for name in ("input_wait_share", "input_wait_ns"))
        parts = ([row for row in table if row["rank"] == rank] for table in (queues, pipeline))
        for code, parameters, level in _messages(share, wait, *parts):
            yield Message("input", code, parameters, rank, level)


def _messages(share: float | None, wait: int | None, queues: list[_Row], pipeline: list[_Row]) -> Iterator[tuple[str, _Row, str | None]]:
    yield _headline(share, wait, queues, pipeline)
    for queue in queues:
        counts = {"queue": queue["queue"], "batches": queue["batches"]}
        if queue["empty"] is not None:
            often = queue["empty"] > _OFTEN * queue["batches"]
            yield "queue-empty", counts | {"empty": queue["empty"]}, "high" if often else "medium" if queue["empty"] else "info"
        if queue["full"]:
            yield "queue-full", counts | {"full": queue["full"]}, None
    if queues:
        yield from _rules(share, {queue["queue"]: queue["verdict"] for queue in queues})


def _headline(share: float | None, wait: int | None, queues: list[_Row], pipeline: list[_Row]) -> tuple[str, _Row, str | None]:
    bottleneck = next((row for row in pipeline if row["verdict"] == "bottleneck"), None)
    slow = {"operator": bottleneck["op_type"], "rule": _rule(bottleneck, pipeline)} if bottleneck else {}
    queue = next((row for name in _READ for row in queues if row["queue"] == name), queues[0] if queues else None)
    sampled = queue is not None and queue["empty"] is not None
    counts = {"empty": queue["empty"], "ready": queue["batches"] - queue["empty"], "batches": queue["batches"]} if queue and sampled else {}
    if share is None:
        if counts:
            return "input-queue", counts, None
        if slow:
            return "input-bottleneck", slow, "medium"
        return ("input-no-waits" if pipeline or queues else "input-unknown"), {}, None
    waits = known(share=share, wait=wait)
    if share < MATTERS:
        return ("input-ready-bottleneck" if slow else "input-ready"), waits | slow, "info"
    if any(row["verdict"] == "waits for transfer" for row in queues):
        return "input-wait-transfer", waits, severity(share)
    if slow:
        return "input-wait-bottleneck", waits | slow, severity(share)
    if not counts:
        return "input-wait", waits, severity(share)
    often = counts["empty"] > _OFTEN * counts["batches"]
    return ("input-wait-empty" if often else "input-wait-order"), waits | counts, severity(share)


def _rule(row: _Row, pipeline: list[_Row]) -> str:
    """Which of the three rules names the bottleneck."""
    if all(other["parent"] != row["op_id"] for other in pipeline):
        return "source rule"
    return "last rule" if (row["queue_share"] or 0) > _FULL else "between rule"


def _rules(share: float | None, verdicts: dict[str, str | None]) -> Iterator[tuple[str, _Row, str | None]]:
    """Whether data is ready, processing is slow, and the transfer is slow, over the whole recording."""
    read = next((verdicts[name] for name in ("device", "iterator") if name in verdicts), next(iter(verdicts.values())))
    both = {"device", "device queue"} <= verdicts.keys()
    ready, processing, transfer = (
        None if read is None else applies
        for applies in (
            read in ("ready", "full"),
            "waits for processing" in verdicts.values(),
            "waits for transfer" in verdicts.values() if both else None,
        )
    )
    late = share is not None and share >= MATTERS
    for code, applies, level in (
        ("input-rule-ready", ready, None if late else "info"),
        ("input-rule-processing", processing, "high"),
        ("input-rule-transfer", transfer, "high"),
    ):
        yield code, {"applies": "unknown" if applies is None else "applies" if applies else "does not apply"}, level if applies else None
    if ready and late:
        yield "input-order", {"share": share}, None
