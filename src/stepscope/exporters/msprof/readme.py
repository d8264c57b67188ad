"""README.txt of the folder: the contents of its files."""

_TIMELINES = {
    "msprof.json": (
        "The timeline of everything, for a viewer of Chrome traces or MindStudio Insight.",
        "The process itself: what the program marked (mstx). An arrow leads to where a device reached a mark.",
        "CANN: calls on the host by thread, of AscendCL, models, operators (Node), communication and the runtime.",
        "Ascend Hardware: tasks by stream, and the iterations of each model. An arrow leads from a launch to its task.",
        "Communication: operators of each group, and below them the tasks of their planes.",
        "AI Core Freq and others: counters; a value holds until the next one.",
        "Overlap Analysis: when the device computed, communicated, communicated without computing, and did neither.",
    ),
    "step_trace.json": (
        "The iterations of each model: from forward to backward pass (FP_BP Time), from there to the end (Iteration Refresh),",
        "collectives (Reduce), and the wait for input between two iterations (Data_aug Bound).",
    ),
}
_SUMMARIES = {
    "op_summary": (
        "Every operator that ran on a device, by start.",
        "Task Wait Time: from the end of the operator before it in this table to its start; 0 where that still ran.",
        "Block Num, Mix Block Num: on how many cores it ran, and on how many of the other kind.",
        "aicore_time, aiv_time: mean time on a core. The columns behind them are counters of the cores, as chosen when recording.",
    ),
    "op_statistic": ("Time by type of operator and kind of core; Ratio is the share of all operators of the device.",),
    "step_trace": (
        "The iterations of each model.",
        "Iteration Refresh: from the end of the backward pass to that of the iteration.",
        "Data Aug Bound: from the end of the iteration before, of any model, to the forward pass.",
        "Reduce Start, Reduce Duration: a pair for each collective.",
    ),
    "task_time": ("Every task of every stream.",),
    "fusion_op": ("Operators that the compiler made of several, and their memory.",),
    "api_statistic": ("Calls on the host by level and name; Variance is in us^2. The same calls are listed for each device.",),
    "communication_statistic": ("Communication operators by type.",),
    "msprof_tx": ("Ranges and instants that the program marked (mstx), by start, and when a device reached them.",),
    "l2_cache": ("L2 cache accesses of each operator: the share of hits, and the share that evicted other data.",),
    "memory_record": ("Allocated and reserved memory of the device over time.",),
    "operator_memory": ("Allocations of operators: size, time and duration, and the totals at these times.",),
    "aicpu": ("Operators on AI CPUs, as they report their own phases.",),
}
_GENERAL = "Times are microseconds; a start is since 1970. N/A: not known."


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
