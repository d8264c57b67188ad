"""The tables of Ascend's recordings: details of spans, models and fused operators."""

from typing import Any

import polars as pl

Text = pl.Categorical()  # text that repeats

TABLES: dict[str, dict[str, Any]] = {
    # Details of spans on an Ascend device: streams, marks and tagged ranges. 4294967295 is Ascend's number for no model and no context.
    "tasks": {
        "rank": pl.Int32,
        "span": pl.Int64,
        "model": pl.Int64,
        "iteration": pl.Int64,  # of a span that is an iteration of the model
        "stream": pl.Int64,  # physical stream
        "task": pl.Int64,
        "batch": pl.Int64,  # task numbers have 16 bits: they start again in each batch
        "context": pl.Int64,  # part of the task
        "connection": pl.Int64,  # shared with the call that launched the task
        "runtime_type": Text,
        "kernel_name": Text,
        "launched_ns": pl.Int64,
        "received_ns": pl.Int64,  # when the scheduler received a copy
        "whole_start_ns": pl.Int64,  # the whole task, where the span is only a part of it
        "whole_dur_ns": pl.Int64,
        "op_name": Text,
        "op_type": Text,
        "op_state": Text,  # static, dynamic
        "blocks": pl.Int64,
        "mix_blocks": pl.Int64,  # blocks on the other kind of core
        "hf32": Text,  # YES, NO
        "input_shapes": Text,
        "input_dtypes": Text,
        "input_formats": Text,
        "output_shapes": Text,
        "output_dtypes": Text,
        "output_formats": Text,
        "attributes": Text,
        "copy_bytes": pl.Int64,
        "copy_direction": Text,
        "aicpu_start_ns": pl.Int64,  # times that an operator on the AI CPU reports
        "compute_us": pl.Int64,
        "memcpy_us": pl.Int64,
        "dispatch_us": pl.Int64,
        "run_ns": pl.Int64,
        "total_ns": pl.Int64,
    },
    # Counters of the cores and the L2 cache for each kernel of an Ascend device, named as in op_summary.
    "core_counters": {
        "rank": pl.Int32,
        "span": pl.Int64,
        "name": Text,
        "value": pl.Float64,
    },
    # Details of host calls into CANN.
    "calls": {
        "rank": pl.Int32,
        "span": pl.Int64,
        "level": Text,  # acl, model, node, communication, runtime
        "mode": Text,  # family of the call
        "item": Text,  # what it is called for, such as an operator
        "item_id": pl.UInt64,
        "event": pl.Boolean,  # recorded as two events: begin and end
    },
    # Details of communication operators.
    "collectives": {
        "rank": pl.Int32,
        "span": pl.Int64,
        "group": Text,
        "group_suffix": Text,  # last digits of the number of the group, where the name of the operator has them: 868
        "rank_size": pl.Int64,  # ranks in the group
        "connection": pl.Int64,
        "model": pl.Int64,
        "data_type": Text,
        "algorithm": Text,
        "count": pl.Int64,  # elements
        "relay": pl.Boolean,
        "retry": pl.Boolean,
    },
    # Details of the tasks that communication operators consist of: spans on tracks with a plane.
    "communication_tasks": {
        "rank": pl.Int32,
        "span": pl.Int64,
        "operator": Text,  # name of the communication operator
        "master": pl.Boolean,  # on the main stream of the operator
        "notify_id": Text,
        "estimated_us": pl.Float64,
        "stream": pl.Int64,
        "task": pl.Int64,
        "context": pl.Int64,
        "task_type": Text,
        "src": pl.Int64,
        "dst": pl.Int64,
        "transport": Text,
        "bytes": pl.Int64,
        "data_type": Text,
        "link": Text,
        "bandwidth": pl.Float64,  # GB/s
        "rdma": Text,
        "model": pl.Int64,
    },
    # Details of ranges and instants that a program marks with mstx, on the host and on the device.
    "marks": {
        "rank": pl.Int32,
        "span": pl.Int64,
        "mark": pl.Int64,  # shared by the host and the device
        "event_type": Text,
        "domain": Text,
        "category": pl.Int64,
        "payload_type": pl.Int64,
        "payload_value": pl.UInt64,
        "message_type": pl.Int64,
        "stream": pl.Int64,
        "task": pl.Int64,
    },
    # A model that CANN runs.
    "models": {
        "rank": pl.Int32,
        "model": pl.Int64,
        "name": pl.String,
    },
    # Operators that CANN fused into one, and the memory of the fused operator.
    "fusions": {
        "rank": pl.Int32,
        "model": pl.Int64,
        "name": pl.String,
        "originals": pl.String,  # separated by ;
        "input_bytes": pl.Int64,
        "output_bytes": pl.Int64,
        "weight_bytes": pl.Int64,
        "workspace_bytes": pl.Int64,
        "total_bytes": pl.Int64,
    },
}
