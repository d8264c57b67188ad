"""README.txt of the folder: the contents of its files."""

_TIMELINES = {
    "msprof.json": (
        "The whole timeline, for a viewer of Chrome traces or MindStudio Insight.",
        "The process itself: ranges and instants marked by the program (mstx). Arrows lead to the times at which a device reached a mark.",
        "CANN: calls on the host by thread, of AscendCL, models, operators (Node), communication and the runtime.",
        "Ascend Hardware: tasks by stream, and the iterations of each model. An arrow leads from a launch to its task.",
        "Communication: operators of each group, and below them the tasks of their planes.",
        "AI Core Freq and others: counters; a value is valid until the next one.",
        "Overlap Analysis: times in which the device computed, communicated, communicated without computing, and was idle.",
    ),
    "step_trace.json": (
        "The iterations of each model: from forward to backward pass (FP_BP Time), from there to the end (Iteration Refresh),",
        "collectives (Reduce), and the wait for input between two iterations (Data_aug Bound).",
    ),
}
_SUMMARIES = {
    "op_summary": (
        "Every operator that ran on a device, by start.",
        "Task Wait Time: from the end of the operator before it in this table to its start; 0 if that one still ran.",
        "Block Num, Mix Block Num: the number of cores, and the number of cores of the other kind.",
        "aicore_time, aiv_time: mean time on a core. The next columns are counters of the cores, as chosen for the recording.",
    ),
    "op_statistic": ("Time by type of operator and kind of core; Ratio is the share of all operators of the device.",),
    "step_trace": (
        "The iterations of each model.",
        "Iteration Refresh: from the end of the backward pass to that of the iteration.",
        "Data Aug Bound: from the end of the iteration before, of any model, to the forward pass.",
        "Reduce Start, Reduce Duration: a pair for each collective.",
    ),
    "task_time": ("Every task of every stream.",),
    "fusion_op": ("Operators that the compiler fused, and their memory.",),
    "api_statistic": ("Calls on the host by level and name; Variance is in us^2. The same calls are listed for each device.",),
    "communication_statistic": ("Communication operators by type.",),
    "msprof_tx": ("Ranges and instants marked by the program (mstx), by start, and the times at which a device reached them.",),
    "l2_cache": ("L2 cache accesses of each operator: the share of hits, and the share that evicted other data.",),
    "memory_record": ("Allocated and reserved memory of the device over time.",),
    "operator_memory": ("Allocations of operators: size, time and duration, and the totals at these times.",),
    "aicpu": ("Operators on AI CPUs, with the phases that they report.",),
}
_GENERAL = "Times are microseconds; starts are since 1970. N/A: unknown."


def text(files: set[str]) -> str:
    """`files` without the times in their names."""
    timelines = [(name, lines) for name, lines in _TIMELINES.items() if name in files]
    names = [(file, lines) for name, lines in _SUMMARIES.items() for file in (f"{name}.csv", f"{name}.json", f"{name}_summary.json")]
    tables = [(file, lines) for file, lines in names if file in files and file not in _TIMELINES]
    parts = [_GENERAL, ""]
    for title, rows in (("Timeline file description:", timelines), ("Summary file description:", tables)):
        if rows:
            parts.append(title)
            for number, (name, lines) in enumerate(rows, 1):
                parts += [f"{number}.{name}: {lines[0]}", *(f"\t{line}" for line in lines[1:])]
            parts.append("")
    return "\n".join(parts)
